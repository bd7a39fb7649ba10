"""Files on disk: where they are, reading and writing them safely, full disks, and values kept between commands."""
