from tpu_console.tui.terminal.display import attention


def test_the_bell_and_a_notification_that_cannot_control_the_terminal() -> None:
    assert attention("The loss jumped.") == "\a\x1b]9;The loss jumped.\x1b\\"
    hostile = attention("a\x1b\\\x07\x1b]0;b" + "c" * 999)
    assert hostile[4:-2].isprintable()
    assert len(hostile) < 250
