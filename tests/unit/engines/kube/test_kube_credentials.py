"""What is wrong with a kubeconfig file is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.engines.kube.credentials import find_credentials

GOOD = """
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u, namespace: ml}}
- {name: there, context: {cluster: d, user: u}}
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:9"}}
- {name: d, cluster: {server: "http://127.0.0.1:10"}}
users:
- {name: u, user: {token: secret}}
"""


def write(folder: Path, text: str) -> str:
    (folder / "config").write_text(text)
    return str(folder / "config")


def test_the_context_and_the_namespace_are_those_of_the_file_unless_others_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    found = find_credentials(path)
    assert (found.url, found.namespace, found.token()) == ("https://127.0.0.1:9", "ml", "secret")
    found = find_credentials(path, "there", "lab")
    assert (found.url, found.namespace, found.tls) == ("http://127.0.0.1:10", "lab", None)
    assert find_credentials(path, "there").namespace == "default"


def test_without_a_name_the_variable_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path, GOOD))
    assert find_credentials().namespace == "ml"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (GOOD, "a: [", "is not valid YAML"),
        (GOOD, "hello", "is not a kubeconfig file"),
        ("current-context: here", "", "has no current-context"),
        ("current-context: here", "current-context: away", "there is no context 'away'"),
        ("name: c, cluster:", "name: x, cluster:", "there is no cluster 'c'"),
        ("name: u, user:", "name: x, user:", "there is no user 'u'"),
        ("https://127.0.0.1:9", "127.0.0.1:9", "is no address"),
        ("{token: secret}", "{client-certificate-data: '!', client-key-data: '!'}", "a certificate or key"),
        ("{token: secret}", "{client-certificate: gone.crt, client-key: gone.key}", "a certificate or key"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InputError, match=problem) as caught:
        find_credentials(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file") as caught:
        find_credentials(str(tmp_path / "none"))
    assert "--kubeconfig" in caught.value.hint
