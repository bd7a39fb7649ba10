"""Files on disk, whatever they mean: where they are, reading and writing them safely, full disks, values kept."""
