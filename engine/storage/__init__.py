"""Files on disk: where they are, reading and writing them safely, full disks, and small values kept between commands.

What a file means belongs to the folder of its subject; this one knows no run and no configuration.
"""
