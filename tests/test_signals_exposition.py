# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""What exporters tell, in all its forms: from the text of a page to beats of GPUs and paces of training jobs.

The forms of dcgm-exporter are those of its releases: labels of a pod that are there, empty or absent, old names of the
labels, names that a Prometheus server has changed, slices of a GPU, shares of its time, devices of DRA.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadog_checks.kueue_gang.facts.signals import Beat, Pace
from datadog_checks.kueue_gang.sources.exposition import close, names, page
from datadog_checks.kueue_gang.sources.samples import ACTIVITY_METRICS, Found, Teller, beats, paces
from lab.exporters import dcgm

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
AT = 1000.0


def line(labels: str, value: object, name: str = UTIL) -> str:
    """Return a line of dcgm-exporter for its first GPU."""
    gpu = 'gpu="0",UUID="GPU-0",pci_bus_id="00000009:01:00.0",device="nvidia0",modelName="NVIDIA H100",Hostname="n1"'
    return f"{name}{{{gpu}{',' if labels else ''}{labels}}} {value}"


def heard(*lines: str) -> Found:
    """Return the beats in a page of these lines."""
    return beats(page("\n".join(lines).encode() + b"\n", ACTIVITY_METRICS).samples, AT)


def told(text: str, metric: str) -> Found:
    """Return the paces of one pod whose page is `text`."""
    found = page(text.encode(), (metric,))
    return paces(0, ((Teller("team", "train-0"), sample) for sample in found.samples), AT, counters=found.counters)


def pace(value: float, *, counter: bool) -> Pace:
    """Return the pace of that pod."""
    return Pace(0, "team", "train-0", "", value, counter, AT)


def test_the_parts_of_a_sum_of_counters() -> None:
    """Each series of a pod is told apart by its labels, in whatever order; a gauge has no parts."""
    lines = ('tokens_total{worker="a",gpu="0"} 3\n', 'tokens_total{worker="b",gpu="1"} 4\n')
    (one,) = told("".join(lines), "tokens_total").paces
    (two,) = told('tokens_total{gpu="1",worker="b"} 5\n' + lines[0], "tokens_total").paces
    ((a, _), (b, _)) = one.parts
    assert (one.value, dict(one.parts), a != b) == (7, {a: 3, b: 4}, True)
    assert dict(two.parts) == {a: 3, b: 5}
    (gauge,) = told('rate{gpu="0"} 3\nrate{gpu="1"} 4\n', "rate").paces
    assert gauge.parts == ()


# --- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ('container="c",namespace="team",pod="train-0"', "GPU-0"),
        ('container="",namespace="team",pod="train-0",hpc_job=""', "GPU-0"),
        ('container_name="c",pod_namespace="team",pod_name="train-0"', "GPU-0"),
        ('exported_container="c",exported_namespace="team",exported_pod="train-0"', "GPU-0"),
        (
            'exported_namespace="team",exported_pod="train-0",namespace="gpu-operator",pod="nvidia-dcgm-exporter-x"',
            "GPU-0",
        ),
        ('GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",namespace="team",pod="train-0"', "GPU-0/7"),
        ('vgpu="3",namespace="team",pod="train-0"', "GPU-0/3"),
        (
            'dra_claim_name="one",dra_claim_namespace="team",dra_device_name="gpu-0",namespace="team",pod="train-0"',
            "GPU-0",
        ),
    ],
    ids=["plain", "some empty", "old names", "renamed", "renamed, and the exporter's own", "MIG", "time-shared", "DRA"],
)
def test_the_pod_and_the_device_of_a_series(labels: str, device: str) -> None:
    """Each form of the labels tells the pod that holds the device; the exporter's own pod is not it."""
    assert heard(line(labels, 37)).beats == [Beat("team", "train-0", device, True, AT)]


@pytest.mark.parametrize("labels", ["", 'pod="",namespace="",container=""', 'namespace="team"', 'pod="train-0"'])
def test_a_gpu_of_nobody_has_no_beat(labels: str) -> None:
    """Where no pod holds the GPU its labels are absent or empty, and half a name is no name."""
    found = heard(line(labels, 37))
    assert found.beats == []
    assert not found.bad


@pytest.mark.parametrize(
    ("value", "active"),
    [
        *((0, False), ("0.000000", False), (0.0009, False), (0.0011, True), (0.05, True), (1, True), (100, True)),
        *((5e6, True), (1e9, True), (2.2e9, True), ("1.2e12", True)),
    ],
)
def test_what_counts_as_active(value: object, active: bool) -> None:
    """More than a thousandth, of a ratio as of percent: less is the noise of the counter.

    A query may tell work in any unit, as bytes a second or counts of energy. Samples of work that were left out would
    let a GPU seem idle that was sampled in a pause now and then.
    """
    (beat,) = heard(line('namespace="team",pod="p"', value)).beats
    assert beat.active is active


@pytest.mark.parametrize(("ratio", "percent", "active"), [(0, 0, False), (0.4, 0, True), (0, 40, True)])
def test_any_metric_says_that_it_works(ratio: float, percent: float, active: bool) -> None:
    """A profiling counter stands still while somebody else holds it, and the utilization is not there on a slice."""
    labels = 'namespace="team",pod="p"'
    (beat,) = heard(line(labels, ratio, ACTIVE), line(labels, percent)).beats
    assert beat.active is active


def test_one_of_two_metrics_is_enough() -> None:
    """The one that is no number says nothing; the other one does."""
    labels = 'namespace="team",pod="p"'
    found = heard(line(labels, "NaN", ACTIVE), line(labels, 0))
    assert found.beats == [Beat("team", "p", "GPU-0", False, AT)]
    assert found.bad == {"nan": 1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *(("NaN", "nan"), ("+Inf", "inf"), ("-Inf", "inf"), (-1, "other")),
        *((value, "other") for value in (2147483632, 2147483634, 140737488355328, "140737488355330.000000")),
        *((value, "other") for value in (9223372036854775792, "9223372036854775794", 9.22e18)),
    ],
)
def test_a_value_that_is_none_is_no_beat(value: object, reason: str) -> None:
    """What DCGM writes for a value that it has not, and what is no number, is neither active nor inactive."""
    found = heard(line('namespace="team",pod="p"', value))
    assert found.beats == []
    assert found.bad == {reason: 1}


def test_slices_of_one_gpu_are_devices_of_their_own() -> None:
    """Two pods hold a slice each of one GPU; one works, the other does not. The GPU itself is nobody's."""
    found = heard(
        line("", 30),
        line('GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",namespace="team",pod="a"', 0.9, ACTIVE),
        line('GPU_I_PROFILE="1g.10gb",GPU_I_ID="8",namespace="team",pod="b"', 0, ACTIVE),
    )
    assert sorted(found.beats) == [
        Beat("team", "a", "GPU-0/7", True, AT),
        Beat("team", "b", "GPU-0/8", False, AT),
    ]


def test_pods_that_share_a_gpu_share_what_it_does() -> None:
    """A GPU that two pods share by DRA is told for each; which of them works nobody knows, so none is idle."""
    found = heard(line('namespace="team",pod="a"', 50), line('namespace="team",pod="b"', 50))
    assert {(beat.pod, beat.active) for beat in found.beats} == {("a", True), ("b", True)}


def test_a_whole_node() -> None:
    """Eight GPUs in a page of real size: those that are held have a beat each."""
    gpus = [("team", f"train-{n // 4}", 0.5 * (n < 4)) for n in range(6)] + [("", "", 0.0)] * 2
    body = dcgm("n1", gpus)
    found = beats(page(body, ACTIVITY_METRICS).samples, AT)
    assert len(found.beats) == 6
    assert {(beat.pod, beat.active) for beat in found.beats} == {("train-0", True), ("train-1", False)}


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "metric", "counter"),
    [
        ("# TYPE tokens_total counter\ntokens_total 7\n", "tokens_total", True),
        ("# TYPE tokens counter\ntokens_total 7\n", "tokens_total", True),
        ("# HELP tokens_total Tokens.\n# TYPE tokens_total counter\ntokens_total 7\n", "tokens", True),
        ("# TYPE rate gauge\nrate 7\n", "rate", False),
        ("rate 7\n", "rate", False),
        ("tokens_total 7\n", "tokens_total", True),
        ("# TYPE tokens_total untyped\ntokens_total 7\n", "tokens_total", True),
        ("# TYPE tokens_total gauge\ntokens_total 7\n", "tokens_total", False),
        ("# TYPE worker_count gauge\nworker_count 7\n", "worker_count", False),
        ("# TYPE steps counter\nsteps 7\n", "steps", True),
        (
            '# TYPE step_seconds histogram\nstep_seconds_bucket{le="1"} 3\nstep_seconds_count 7\n',
            "step_seconds_count",
            True,
        ),
        ("# TYPE step_seconds summary\nstep_seconds_sum 7\n", "step_seconds_sum", True),
        ("  rate 7\n", "rate", False),
        ("rate\t7\n", "rate", False),
        ("rate 7 1700000000000\n", "rate", False),
        ("rate 7\r\n", "rate", False),
        ("rate 7", "rate", False),
        ('# TYPE tokens counter\ntokens_total 7 # {trace_id="x"} 1.0 1700000000.0\n# EOF\n', "tokens_total", True),
    ],
)
def test_what_counts_up(text: str, metric: str, counter: bool) -> None:
    """The TYPE of the family tells, and without one the name."""
    assert [one._replace(parts=()) for one in told(text, metric).paces] == [pace(7, counter=counter)]


def test_the_series_of_a_pod_add_up() -> None:
    """A pod with two devices tells a rate for each."""
    assert told('rate{gpu="0"} 3\nrate{gpu="1"} 4.5\nrated 100\nother_rate 100\n', "rate").paces == [
        pace(7.5, counter=False)
    ]


@pytest.mark.parametrize("bad", ["NaN", "+Inf"])
def test_a_sum_with_a_part_that_is_none_is_none(bad: str) -> None:
    """Half of a rate is no rate."""
    found = told(f'rate{{gpu="0"}} 3\nrate{{gpu="1"}} {bad}\n', "rate")
    assert found.paces == []
    assert found.bad.total() == 1


def test_a_line_that_is_none_costs_itself() -> None:
    """The other series of the page are read, and the line is counted."""
    found = page(b'rate{gpu="0} 3\nrate{gpu="1"} 4\nrate{gpu="2"} four\n', ("rate",))
    assert [sample.value for sample in found.samples] == [4]
    assert found.broken == 2


def test_a_distribution_is_no_figure() -> None:
    """Of a summary the quantiles are left out: added up they mean nothing."""
    text = b'# TYPE t summary\nt{quantile="0.5"} 1\nt{quantile="0.9"} 2\nt_sum 3\nt_count 2\n'
    assert page(text, ("t",)).samples == []
    assert close(["t_sums"], names(text)) == ["t_sum"]


# --- what is no page -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "an empty answer"),
        (b" \n\n", "an empty answer"),
        (b"<!DOCTYPE html>\n<html><body>rate 7</body></html>", "an HTML page"),
        (b'{"rate": 7}', "no metrics"),
        (b"404 page not found\n", "no metrics"),
        (b"Please log in\nto go on\n", "no metrics"),
        (bytes(range(256)) * 4, "no metrics"),
        (b"# HELP rate Rate.\n# TYPE rate gauge\n", "no metrics"),
    ],
)
def test_what_is_no_page_is_told_by_what_it_is(body: bytes, what: str) -> None:
    """HTML, JSON, prose, bytes, and metrics without a sample."""
    with pytest.raises(ValueError, match=what):
        page(body, ("rate",))


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("train_tokens_per_sec", ["train_tokens_per_second"]),
        ("tokens_per_second", ["train_tokens_per_second"]),
        ("Train_Tokens_Per_Second", ["train_tokens_per_second"]),
        ("loss_value", []),
    ],
)
def test_names_that_come_close(wanted: str, near: list[str]) -> None:
    """A wrong name is told with those that the page has and that look like it."""
    body = (
        b'# TYPE train_tokens_per_second gauge\ntrain_tokens_per_second{rank="0"} 7\nprocess_open_fds 3\ngo_threads 1\n'
    )
    assert page(body, (wanted,)).samples == []
    assert close([wanted], names(body)) == near


WORDS = [
    b"rate",
    b"{",
    b"}",
    b'"',
    b"=",
    b" ",
    b"\n",
    b"7",
    b"NaN",
    b"# TYPE ",
    b"\\",
    b"\xff",
    b"_total",
    b",",
    b"gpu",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_no_text_breaks_it(words: list[bytes]) -> None:
    """Whatever the bytes are: samples that are finite or counted, or one error that says what it is."""
    try:
        found = page(b"".join(words), ("rate",))
    except ValueError as error:
        assert str(error) in {"an empty answer", "no metrics", "an HTML page"}
    else:
        assert all(sample.name in {"rate", "rate_total"} for sample in found.samples)
        assert found.broken >= 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.sampled_from(["0", "0.5", "NaN", "-3", "+Inf"])),
        max_size=12,
        unique_by=lambda row: row[:2],
    )
)
def test_no_sample_is_lost(rows: list[tuple[str, int, str]]) -> None:
    """Each device has one beat where any of its values is good, and each bad value is counted."""
    text = "\n".join(f'{UTIL}{{UUID="GPU-{gpu}",namespace="n",pod="{pod}"}} {value}' for pod, gpu, value in rows)
    found = heard(text) if rows else Found()
    good = {(pod, f"GPU-{gpu}"): value == "0.5" for pod, gpu, value in rows if value in {"0", "0.5"}}
    assert {(beat.pod, beat.device): beat.active for beat in found.beats} == good
    assert found.bad.total() == len(rows) - len(good)
