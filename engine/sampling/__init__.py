"""What a run's devices and its host do meanwhile, read once a second from a thread of its own.

`engine.sampling.sampler` is that thread. The others read one thing each: `devices` the memory of replicas and how busy
they are, `libtpu` what a TPU's runtime serves, `host` the machine, `pace` how fast this host trains. None loads a
framework: a run has loaded its own before it begins to sample.
"""
