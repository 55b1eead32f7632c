"""A study's figure, and its trials as TensorBoard's own HPARAMS tab reads them."""

import json

import numpy as np
import pytest

from rembed_keras.analysis.event_files.trials import write_trial
from rembed_keras.analysis.studies.definition import Hypothesis
from rembed_keras.analysis.studies.results.figure import draw_study
from rembed_keras.analysis.studies.results.hparams import write_trials
from rembed_keras.analysis.studies.verdicts import derive

HYPOTHESIS = Hypothesis("wide finds more", "wide", "one", "found", "higher", 0.02)


@pytest.fixture
def record():
    values = {"wide": (0.5, 0.7, 0.63), "one": (0.4, 0.6, 0.5)}
    scores = [
        {"arm": arm, "seed": seed, "measure": "found", "language": language, "value": value + shift}
        for arm, found in values.items()
        for seed, value in enumerate(found)
        for language, shift in (("de", -0.1), ("fr", 0.1))
    ]
    runs = [
        {"name": f"{arm}-seed{seed}", "arm": arm, "seed": seed, "state": "finished",
         "command": ["run", "a.gin", f"WIDTH={64 if arm == 'wide' else 8}", f"SEED={seed}", "WORKDIR=x"]}
        for arm in values for seed in range(3)
    ]  # fmt: skip
    return {
        "hypotheses": [vars(HYPOTHESIS)],
        "verdicts": [each.to_json() for each in derive([HYPOTHESIS], scores)],
        "measures": [{"name": "found"}],
        "arms": [{"name": "wide"}, {"name": "one"}],
        "scores": scores,
        "runs": [*runs, {"name": "more-seed0", "arm": "more", "seed": 0, "state": "failed", "command": []}],
        "curves": [{"arm": "wide", "seed": 0, "points": [[1, 3.0], [2, 2.0]]}, {"arm": "one", "seed": 0, "points": []}],
    }


def trials(folder):
    """What the tab shows: settings and metrics by trial."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    events = EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    context = backend_context.Context(TBContext(data_provider=MultiplexerDataProvider(events, str(folder))))
    request, asked = RequestContext(), api_pb2.ListSessionGroupsRequest(
        allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING, api_pb2.STATUS_SUCCESS],
        start_index=0, slice_size=100,
    )  # fmt: skip
    columns = context.experiment_from_metadata(
        request, "", True, context.hparams_metadata(request, ""), context.hparams_from_data_provider(request, "", 100)
    )
    asked.col_params.extend(api_pb2.ColParams(metric=info.name) for info in columns.metric_infos)
    found = list_session_groups.Handler(request, context, "", asked).run()
    return {
        group.name: (
            {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()},
            {value.name.tag: value.value for value in group.metric_values},
        )
        for group in found.session_groups
    }


def test_tensorboard_shows_a_trial_a_run(record, tmp_path):
    old = record["runs"][0] | {"name": "old-seed0", "arm": "old"}
    for runs in ([old], record["runs"]):  # the second time in place of the first
        write_trials(tmp_path / "tensorboard", record | {"runs": runs})
    found = trials(tmp_path / "tensorboard")
    assert len(found) == 6
    settings, metrics = found["wide-seed1"]
    assert settings == {"arm": "wide", "seed": 1.0, "WIDTH": "64"}
    assert metrics == {"found": pytest.approx(0.7)}


def test_a_run_that_wrote_a_trial_of_its_own_is_one_trial(record, tmp_path):
    write_trial(tmp_path / "wide-seed1/tensorboard/scores", "wide-seed1", {"STEPS": 3}, {"pretrain/loss": 2.0})
    write_trials(tmp_path / "tensorboard", record)
    found = trials(tmp_path)
    assert len(found) == 6
    assert found["wide-seed1"] == ({"arm": "wide", "seed": 1.0, "WIDTH": "64"}, {"found": pytest.approx(0.7)})


def test_the_figure_is_drawn(record, tmp_path):
    from matplotlib.image import imread

    draw_study(tmp_path / "study.png", record)
    pixels = imread(tmp_path / "study.png")
    record["verdicts"][0]["verdict"] = "too close to call"
    draw_study(tmp_path / "other.png", record)
    assert pixels.shape[0] > 500 and not np.array_equal(pixels, imread(tmp_path / "other.png"))
    assert {path.name for path in tmp_path.iterdir()} == {"study.png", "other.png"}


def test_a_loss_of_another_kind_is_named_and_not_drawn(record, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: seen.append(figure.axes[0]))
    points = {"wide": [[1, 3.0], [2, 2.0]], "one": [[1, 27.0], [2, 18.0]]}
    curves = [{"arm": arm, "seed": 0, "points": each} for arm, each in points.items()]
    draw_study(tmp_path / "study.png", record | {"curves": curves[:1]})
    draw_study(tmp_path / "study.png", record | {"curves": curves})
    assert [axes.get_title(loc="left") for axes in seen] == ["", "not shown, a loss of another kind: one, from 18"]
    assert [len(axes.lines) for axes in seen] == [1, 1]


def test_a_long_title_stays_inside_the_figure(record, tmp_path, monkeypatch):
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    inside = []

    def measure(figure, file, **_):
        figure.draw_without_rendering()
        (title,) = figure.axes[1].findobj(lambda each: isinstance(each, Text) and each.get_text().startswith("saved"))
        inside.append(title.get_window_extent().x1 <= figure.bbox.x1)

    monkeypatch.setattr(Figure, "savefig", measure)
    record["hypotheses"][0]["name"] = "saved parameters in depth beat the coupled model at equal FLOPs: probe in others"
    draw_study(tmp_path / "study.png", record)
    assert inside == [True]


def test_the_figure_of_a_study_before_its_runs_is_drawn(record, tmp_path):
    empty = record | {"curves": [], "verdicts": [each.to_json() for each in derive([HYPOTHESIS], [])]}
    draw_study(tmp_path / "study.png", empty)
    assert (tmp_path / "study.png").stat().st_size > 1000


def test_a_dollar_in_a_name_begins_no_formula(record, tmp_path):
    named = json.loads(json.dumps(record).replace('"wide', r'"$\\wide$'))
    draw_study(tmp_path / "study.png", named)
    assert (tmp_path / "study.png").stat().st_size > 1000
