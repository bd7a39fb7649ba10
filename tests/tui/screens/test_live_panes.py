"""The panes beside and below the charts of the live screen, those of devices and hosts drawn from TPU runs."""

import re
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from tests.tui.live_fakes import FakeEngine, each_size, live, resize, screen_text, shows, until
from tests.tui.tpu_fakes import GIB, NO_DISK, NO_DUTY, trained
from tpu_console.engine.runs.events import MirrorReported, ReplicaMemory, Sample, Translated
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.scene import Marker
from tpu_console.tui.following.overview import Setting
from tpu_console.tui.widgets.host_panes import SystemPane
from tpu_console.tui.widgets.live_panes import LogPane, SamplesPane, SettingsPane

SIZES = [(80, 24), (80, 50), (120, 24), (120, 40), (200, 50)]


def lines_with(pilot: Pilot[int], text: str) -> list[str]:
    return [line for line in screen_text(pilot).splitlines() if text in line]


async def test_every_replica_is_shown_with_its_figures(tmp_path: Path) -> None:
    run = trained(tmp_path, seconds=1)
    async with ConsoleApp(run=run.run).run_test(size=SIZES[0]) as pilot:
        await pilot.press("4")
        async for size in each_size(pilot, *SIZES):
            await shows(pilot, "JAX (a TPU is here and JAX is ready for it); DataParallel; mesh 2×4")
            await shows(pilot, "TPU:7", "3,1,0", "1,500", "68%", "9.7/15.8 GiB", "━")
            if size[0] >= 120:
                await shows(pilot, "TPU v5 lite", "tpu-vm-0", "  128  ")


async def test_reasons_can_be_read_with_512_replicas(tmp_path: Path) -> None:
    memory = tuple(ReplicaMemory(i, 3 * GIB, None, 16 * GIB, "", None, NO_DUTY) for i in range(511))
    last = ReplicaMemory(511, None, None, None, "the driver is too old", None, NO_DUTY)
    run = trained(tmp_path, 64, 8, seconds=1, memory=(*memory, last))
    async with ConsoleApp(run=run.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "▸", "host 0", "TPU:0", "3.0/16.0 GiB", after="p")
        assert "TPU:8" not in screen_text(pilot), "many replicas have one row per host"
        await shows(pilot, "memory: the driver is too old", f"duty: {NO_DUTY}", after="end")
        await shows(pilot, "host 0", "TPU:8", "TPU:9", after=("home", "h"))
        assert "TPU:0 " not in screen_text(pilot)


@pytest.mark.parametrize(("marker", "sign"), [("braille", "▲"), ("ascii", "!")])
async def test_a_slow_host_is_marked_and_each_host_has_its_own_sparklines(
    tmp_path: Path, marker: Marker, sign: str
) -> None:
    run = trained(tmp_path, 2, 4, rates=[12_000, 9_000])
    async with ConsoleApp(run=run.run, marker=marker).run_test(size=(120, 50)) as pilot:
        await until(pilot, lambda: "system" in live(pilot).panes)
        await shows(pilot, "host 0 of 2: tpu-vm-0", "examples/s 12,000", after="6")
        await shows(pilot, f"{sign} host 1 of 2: tpu-vm-1 is slow, 14% below", "examples/s 9,000", after="h")
        await shows(pilot, "host 0 of 2: tpu-vm-0", after="h")
        await pilot.press("6", "4")
        async for _size in each_size(pilot, (80, 24), (120, 40), (200, 50)):
            await shows(pilot, f"{sign} host 1 (tpu-vm-1) is slow: 9,000 examples/s, 14% below the median host")
            rows = lines_with(pilot, "slow tpu-vm-1")
            assert rows
            assert all(sign in row and "2,250" in row for row in rows)
            if marker == "ascii":
                assert screen_text(pilot).isascii()


async def test_a_host_is_lost_while_the_screen_is_open(tmp_path: Path) -> None:
    run = trained(tmp_path, 2, 4, seconds=1)
    async with ConsoleApp(run=run.run).run_test(size=(200, 50)) as pilot:
        await shows(pilot, "TPU:7", "9.7/15.8 GiB", after="4")
        run.lose(1)
        await shows(pilot, "host 1 (tpu-vm-1) is lost: no heartbeat for 12 s", "lost tpu-vm-1", "–")
        assert "9.7/15.8 GiB" not in screen_text(pilot), "old figures are not shown"
        await shows(pilot, "host 0 of 2: tpu-vm-0", after=("4", "6"))
        await pilot.press("h")
        await shows(pilot, "✗ host 1 of 2: tpu-vm-1 is lost", "cpu, memory, disk, examples/s: the host is lost")


async def test_the_hosts_figures_are_sparklines_on_the_axis_of_the_loss_chart(tmp_path: Path) -> None:
    run = trained(tmp_path, seconds=80)
    async with ConsoleApp(run=run.run).run_test(size=SIZES[0]) as pilot:
        await shows(pilot, "▲ input-bound")
        await pilot.press("6")
        async for _ in each_size(pilot, *SIZES):
            await shows(pilot, "waits      38%", "cpu", "memory     28.0/188.0 GiB", "disk", "MB/s", "of 100%")
            await shows(pilot, "input-bound (38% waiting for data)", "step   ")
            # The last row of each has no gap.
            await until(pilot, lambda: len(re.findall("[▁▂▃▄▅▆▇█]{20,}", screen_text(pilot))) >= 4)
        await resize(pilot, (120, 40))
        await pilot.press("x", "x")
        assert live(pilot).query_one(SystemPane).axis is Axis.TIME
        await until(pilot, lambda: any("20s" in line and "60s" in line for line in lines_with(pilot, "time   ")))
        run.second(wait=0.02, limit="accelerator")
        await shows(pilot, "waits      2%", "compute-bound (2% waiting for data)")


async def test_the_pane_comes_with_its_figures_is_reached_by_keys_and_says_why_one_is_missing(tmp_path: Path) -> None:
    run = trained(tmp_path, seconds=0)
    async with ConsoleApp(run=run.run).run_test(size=(120, 24)) as pilot:
        await shows(pilot, "TPU:3")
        await pilot.press("6", "h")
        assert live(pilot).zoomed == ""
        assert "system" not in live(pilot).panes
        run.second(disk=False)
        await until(pilot, lambda: "system" in live(pilot).panes)
        seen = set()
        for _ in range(5):
            await pilot.press("p")
            seen.add(live(pilot).focused.id)  # type: ignore[union-attr]  # a pane
        assert seen == {"epochs", "replicas", "log", "system"}
        await shows(pilot, "waits      38%", "disk       n/a", f"disk: {NO_DISK}", after="6")
        assert live(pilot).zoomed == "system"


async def test_a_mirror_that_cannot_be_written_is_shown_without_a_key(tmp_path: Path) -> None:
    run = trained(tmp_path, seconds=1)
    run.write(MirrorReported("gs://bucket/runs/a", 12))
    async with ConsoleApp(run=run.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "epoch 1/10")
        await shows(pilot, "mirror: complete to epoch 12", after="6")
        assert not lines_with(pilot, "Mirror: ")
        run.write(MirrorReported("gs://bucket/runs/a", 12, "No space left on device"))
        await shows(pilot, "Mirror: not written for ")
        await shows(pilot, " s, retrying (No space left on device)")
        run.write(MirrorReported("gs://bucket/runs/a", 13))
        await shows(pilot, "mirror: complete to epoch 13")
        await until(pilot, lambda: not lines_with(pilot, "Mirror: "))


SAMPLES = (
    Sample("Did you see the red house?", "¿Tú mira un casa rojo?", "tú mira un casa rojo"),
    Sample("I read [bold]books[/bold].", "Yo leo libros.", "yo como [UNK]"),
    Sample("Perhaps she will come tomorrow.", "Tal vez ella vendrá mañana.", ""),
)


async def test_the_newest_translations_are_shown_and_wrong_ones_beside_what_was_expected(engine: FakeEngine) -> None:
    engine.begin(1)
    async with ConsoleApp(run=engine.run).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "★     1")
        assert "samples" not in live(pilot).panes
        engine.write(Translated(1, SAMPLES))
        await shows(pilot, "7 samples")
        await pilot.press("p", "p", "p")
        pane = live(pilot).query_one(SamplesPane)
        async for size in each_size(pilot, (80, 24), (80, 50), (120, 40), (200, 50)):
            await shows(pilot, "translations after epoch 1", "Did you see the red house?", "✓ tú mira un casa rojo")
            await until(pilot, lambda: pane.region.area)
            assert pane.region.height >= 4
            if size != (80, 24):
                await until(pilot, lambda: live(pilot).query_one("#log").region.height >= 1)
                log, side = live(pilot).query_one("#log").region, live(pilot).query_one("#side").region
                assert side.contains_region(log), "the log keeps its place"
        engine.train(2)
        engine.write(Translated(2, SAMPLES))
        await shows(pilot, "translations after epoch 2")
        await pilot.press("7")
        await shows(pilot, "I read [bold]books[/bold].", "▸ yo como [UNK]", "expected: Yo leo libros.", "▸ …")
        assert screen_text(pilot).count("expected:") == 2, "a right translation needs no second one"
        assert "CPU:0" not in screen_text(pilot)
        await until(pilot, lambda: live(pilot).zoomed == "charts", after="p")
        await shows(pilot, "3,200/s", "translations after epoch 2", after="escape")


def test_a_setting_without_a_name_and_a_value_takes_a_row() -> None:
    assert len(SettingsPane("settings").laid_out([Setting("", ""), Setting("epochs", "3")])) == 2


_NOISE = "I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on."
_LINES = (
    _NOISE,
    "E0000 00:00:1.2 3 a.cc:1] the first error",
    *(f"line {number} of the log" for number in range(40)),
    "a long line " + "word " * 20 + "end-of-it",
    _NOISE,
)


class OneLog(App[None]):
    def compose(self) -> ComposeResult:
        yield LogPane("log")

    def on_mount(self) -> None:
        pane = self.query_one(LogPane)
        pane.show(_LINES)
        pane.focus()


def first_line(pilot: Pilot[None]) -> str:
    """The first line below the head of the pane."""
    return screen_text(pilot).splitlines()[1].strip()


async def test_long_lines_wrap_noise_is_folded_into_one_line_and_a_key_goes_to_the_error() -> None:
    async with OneLog().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        text = screen_text(pilot)
        assert "1 error (enter) · 2 routine" in text
        assert "end-of-it" in text  # wrapped, and the newest line is in view
        assert not any(word in text for word in ("oneDNN", "the first error"))
        await shows(pilot, "the first error", after="enter")
        await shows(pilot, "oneDNN custom operations are on.", after=("a", "end"))
        assert "port.cc" not in screen_text(pilot)


async def test_a_text_is_searched_and_its_matches_are_gone_through() -> None:
    async with OneLog().run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        await shows(pilot, "/LINE 1▏", after=("slash", *"LINE", "space", "1"))
        await shows(pilot, "11 matches · enter next", after="enter")
        await until(pilot, lambda: first_line(pilot) == "line 1 of the log")
        await until(pilot, lambda: first_line(pilot) == "line 10 of the log", after="enter")
        await until(pilot, lambda: "11 matches" not in screen_text(pilot), after="escape")
