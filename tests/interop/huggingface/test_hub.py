"""Download and upload, against a stand-in of the hub on this machine; none but its own test reaches a network."""

import base64
import errno
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from rembed_keras import interop
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder

FILES = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"weights", "flax_model.msgpack": b"others"}
SHA = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as a download of one model and a commit of small files need."""

    def log_message(self, *_):
        pass

    def _answer(self, body, code=200, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/owner/name/tree"):
            self._answer([{"type": "file", "path": name, "size": len(FILES[name]), "oid": name} for name in FILES])
        elif path.startswith("/api/models/owner/name"):
            self._answer({"id": "owner/name", "sha": SHA, "siblings": [{"rfilename": name} for name in FILES]})
        elif path.startswith("/owner/name/resolve/") and (name := path.rpartition("/")[2]) in FILES:
            self.server.read.add(name)
            self._answer(FILES[name], X_Repo_Commit=SHA, ETag=f'"{name}"')
        else:
            self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815 - as `http.server` calls it

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/repos/create"):
            self._answer({"url": f"{self.server.address}/owner/new", "name": "owner/new"})
        elif "/preupload/" in self.path:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            rows = [json.loads(line) for line in body.splitlines()]
            values = [row["value"] for row in rows if row["key"] == "file"]
            self.server.taken |= {each["path"]: base64.b64decode(each["content"]) for each in values}
            self._answer(
                {"commitUrl": f"{self.server.address}/owner/new/commit/{SHA}", "commitOid": SHA, "success": True}
            )
        else:
            self._answer({"valid": True, "errors": [], "warnings": []})


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.read, server.taken = set(), {}
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()


def test_a_name_is_downloaded_into_the_cache_and_a_folder_is_itself(hub, tmp_path):
    folder = Path(interop.fetched("owner/name"))
    assert folder.is_relative_to(tmp_path / "cache")
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert hub.read == {"config.json", "model.safetensors"}
    (tmp_path / "owner/name").mkdir(parents=True)
    assert interop.fetched("owner/name") == "owner/name"
    assert interop.fetched("owner/missing") == "owner/missing"  # a path beside others, and no name


def test_pickled_weights_are_downloaded_where_there_are_no_others(hub, monkeypatch):
    monkeypatch.setitem(FILES, "pytorch_model.bin", b"weights again")
    interop.fetched("owner/name")
    assert hub.read == {"config.json", "model.safetensors"}
    hub.read.clear()
    monkeypatch.setenv("HF_HUB_CACHE", "another")
    monkeypatch.delitem(FILES, "model.safetensors")
    assert (Path(interop.fetched("owner/name")) / "pytorch_model.bin").read_bytes() == b"weights again"
    assert hub.read == {"config.json", "pytorch_model.bin"}


def test_what_is_not_there_or_out_of_reach_is_one_plain_line(hub, monkeypatch, tmp_path):
    with pytest.raises(UserError, match=r"no public model of this name on the hub"):
        interop.fetched("owner2/none")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"the hub cannot be reached: download it where there is a network"):
        interop.fetched("owner2/none")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/config.json").write_text("{}")
    with pytest.raises(UserError, match=r"owner2/none was not pushed: .*; made is whole, and can be pushed again"):
        interop.push("made", "owner2/none")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"install huggingface_hub: pip install 'rembed-keras\[hub\]'"):
        interop.fetched("owner2/none")


def test_a_full_disk_and_a_hub_that_answers_no_are_said(hub, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("huggingface_hub.snapshot_download", fail)
        with pytest.raises(UserError, match=r"^owner/name cannot be kept in the hub's cache: No space left on device$"):
            interop.fetched("owner/name")
    monkeypatch.setattr(Hub, "do_GET", lambda self: self._answer({}, 403))
    with pytest.raises(UserError, match=r"^owner/name cannot be downloaded: .*403"):
        interop.fetched("owner/name")


def test_a_folder_is_pushed_with_a_card(hub, tmp_path):
    folder = tmp_path / "preset"
    folder.mkdir()
    (folder / "config.json").write_text('{"config": {"num_layers": 2}}')
    interop.write_card(folder, "owner/new", "preset", 12_345)
    assert interop.push(folder, "owner/new").endswith(SHA)
    card = hub.taken["README.md"].decode()
    assert {*hub.taken} == {name for name, _ in interop.contents(folder)} == {"README.md", "config.json"}
    assert "12,345 parameters" in card and 'from_preset("hf://owner/new")' in card and '"num_layers": 2' in card
    (folder / "README.md").write_text("mine")
    interop.write_card(folder, "owner/new", "preset", 1)
    assert (folder / "README.md").read_text() == "mine"
    with pytest.raises(UserError, match="must be OWNER/NAME"):
        interop.push(folder, "new")


def test_the_card_of_a_task_opens_the_task(tmp_path):
    Classifier(Encoder(60, 1, 2, 8, 16, 8, max_sequence_length=16), 3).save_to_preset(str(tmp_path))
    interop.write_card(tmp_path, "owner/new", "preset", 12_345)
    card = (tmp_path / "README.md").read_text()
    assert 'model = Classifier.from_preset("hf://owner/new")' in card and "Encoder.from_preset" not in card
    assert "A model for a task, Classifier, whose encoder has 12,345 parameters" in card


def test_a_dry_run_lists_what_would_be_uploaded(hub, tmp_path, command):
    encoder = Encoder(60, 1, 2, 8, 16, 8, max_sequence_length=16)
    encoder.save_to_preset(str(tmp_path / "made"))
    words = ("convert", "made", "written", "--from", "preset", "--to", "huggingface", "--push", "owner/new")
    code, out, err = command(*words, "--dry-run", cwd=tmp_path)
    assert code == 0, err
    written = {path.name: path.stat().st_size for path in (tmp_path / "written").iterdir()}
    listed = [line.split() for line in out.splitlines() if line.startswith(("README.md", "config.json", "model."))]
    assert {name: int(size.replace(",", "")) for name, size in listed} == written and len(written) >= 3
    assert "owner/new: nothing is uploaded; leave out --dry-run" in out and not hub.taken
    assert f"{encoder.count_params():,} parameters" in (tmp_path / "written/README.md").read_text()
    for extra, message in ((("--push", "name"), "must be OWNER/NAME"), (("--dry-run",), "--dry-run needs --push")):
        code, _, err = command("convert", "made", "else", "--from", "preset", "--to", "preset", *extra, cwd=tmp_path)
        assert code == 2 and message in err and not (tmp_path / "else").exists()
