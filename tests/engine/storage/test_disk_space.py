import os
from pathlib import Path

from tpu_console.engine.storage.disk_space import make_room


def test_the_least_recently_used_files_make_room_for_one_more(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for at, file in enumerate(files):
        file.write_bytes(bytes(100))
        os.utime(file, (at, at))
    os.utime(files[0], (9, 9))
    make_room([*files, tmp_path / "gone"], 300)
    assert all(file.exists() for file in files)
    make_room(files, 300, size=100)
    assert [file.exists() for file in files] == [True, False, True]
