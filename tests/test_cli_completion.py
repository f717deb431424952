"""``numbaops completion``: scripts that the shells take, and that complete commands and options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cyclopts")

from command_line import Command, Result, one_line_error
from numbaops.cli import main

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> Result:
        status = main([str(each) for each in arguments])
        return Result(status, *capsys.readouterr())

    return run


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_names_commands_and_options(command: Command, shell: str) -> None:
    result = command("completion", shell)
    assert (result.status, result.err) == (0, "")
    names = ("bench", "check", "completion", "info", "ops", "run", "warmup", "seconds", "compare", "onnxruntime")
    assert [name for name in names if name not in result.out] == []
    assert command("completion", shell, "--json").json == {"shell": shell, "script": result.out.removesuffix("\n")}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_the_script(command: Command, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    script = tmp_path / "script"
    script.write_text(command("completion", shell).out)
    subprocess.run([shell, "-n", script], check=True, timeout=30)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("numbaops", "ch"), ["check"]),
        (("numbaops", "bench", "--sec"), ["--seconds"]),
        (("numbaops", "run", "--compare", "o"), ["onnxruntime"]),
        (("numbaops", "check", "--j"), ["--json"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bash_completes(command: Command, tmp_path: Path, words: tuple[str, ...], found: list[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    script = tmp_path / "script"
    script.write_text(command("completion", "bash").out)
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _numbaops; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code, "bash", script, *words], check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == found


def test_install(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    facts = command("completion", "bash", "--install", "--json").json
    assert facts["shell"] == "bash"
    assert "complete -F _numbaops numbaops" in Path(facts["file"]).read_text()
    assert Path(facts["file"]).is_relative_to(tmp_path)
    assert f"installed in {facts['file']}" in command("completion", "bash", "--install").out


def test_which_shell(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from cyclopts.completion import detect

    monkeypatch.setattr(detect, "detect_shell", lambda: "fish")
    assert command("completion", "--json").json["shell"] == "fish"
    monkeypatch.setattr(detect, "detect_shell", lambda: "powershell")
    assert one_line_error(command("completion")) == "which shell this is cannot be told; allowed: bash, zsh, fish"
    assert "Choose from" in one_line_error(command("completion", "tcsh"))
