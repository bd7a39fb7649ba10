"""Addresses of runs on other machines, and the command that connects to them."""

from __future__ import annotations

import pytest

from tpu_console.engine.errors import RunNotFoundError
from tpu_console.engine.remote.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh://vm", Address("vm")),
        ("ssh://vm/", Address("vm")),
        ("ssh://me@vm:2222/fashion", Address("vm", "me", "2222", "fashion")),
        ("ssh://me_site_org@10.0.0.2/a-run", Address("10.0.0.2", "me_site_org", "", "a-run")),
        ("ssh://[2001:db8::7]:22/x", Address("2001:db8::7", "", "22", "x")),
        ("ssh://vm/data/runs/x/", Address("vm", run="/data/runs/x")),
        ("ssh://vm//x", Address("vm", run="/x")),
        ("ssh://vm/~/runs/x", Address("vm", run="~/runs/x")),
        ("ssh://vm/a 'b' $(c);d", Address("vm", run="a 'b' $(c);d")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "ssh://",
        "ssh:///x",
        "ssh://-oProxyCommand=date/x",
        "ssh://-l@vm/x",
        "ssh://a b/x",
        "ssh://vm;date/x",
        "ssh://$(date)/x",
        "ssh://vm:22a/x",
        "ssh://[::1/x",
        "ssh://vm/a\nb",
        "ssh://vm\n",
    ],
)
def test_what_could_be_an_option_or_shell_code_is_refused(text: str) -> None:
    with pytest.raises(RunNotFoundError, match="not the address of a run"):
        parse_address(text)


def test_the_command_names_the_host_after_all_options_and_never_the_run() -> None:
    command = parse_address("ssh://me@vm:2222/a 'b' $(c)").command(asks=False)
    assert command[-3:] == ["--", "vm", "sftp"]
    assert "-oBatchMode=yes" in command
    assert command[command.index("-p") : command.index("-p") + 4] == ["-p", "2222", "-l", "me"]
    assert not any("(c)" in word for word in command)
    assert "-oBatchMode=no" in parse_address("ssh://vm").command(asks=True)


@pytest.mark.parametrize(
    ("text", "folder", "shown"),
    [
        ("ssh://me@vm:22", "x/runs/a-run", "ssh://me@vm:22/a-run"),
        ("ssh://[::1]/run", "x/runs/a-run", "ssh://[::1]/a-run"),
        ("ssh://vm//data", "/data/a-run", "ssh://vm/data/a-run"),
        ("ssh://vm/~/data", "data/a-run", "ssh://vm/~/data/a-run"),
    ],
)
def test_a_run_that_was_found_has_an_address_that_finds_it_again(text: str, folder: str, shown: str) -> None:
    assert parse_address(text).of_run(folder) == shown
    parse_address(shown)
