"""The layout on disk: no link is followed, nothing is half-written, nothing is lost unasked."""

import os
import stat
from pathlib import Path

import pytest

from cardbox_cli.chat.files import folders
from cardbox_cli.errors import Conflict, InvalidInput, NotFound
from tests.chat.layout import trees
from tests.chat.layout.trees import FOLDER, KEY

FILES = {name: data.decode() for name, data in trees.files().items()}


def written(folder: Path, root: Path, files: dict[str, str], *, replace: bool) -> list[str]:
    changes = folders.find_changes(folder, root, files, replace=replace)
    folders.write_files(folder, root, changes)
    return list(changes)


def test_chats_are_found_and_read(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    (tmp_path / ".ship/chat/not a chat").mkdir()
    (tmp_path / ".ship/chat/.DS_Store").touch()
    assert folders.find_chat_folders(tmp_path) == ({KEY: chat}, [".ship/chat/not a chat"])
    assert folders.read_files(chat, tmp_path) == trees.files()


def test_the_project_root_is_found_from_the_ship_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folders.project_root(tmp_path / ".ship") == folders.project_root(tmp_path)
    with pytest.raises(NotFound, match=r"no folder .*\.ship"):
        folders.find_chat_folders(tmp_path)
    (tmp_path / ".ship").mkdir()
    monkeypatch.chdir(tmp_path / ".ship")
    assert folders.project_root(Path()) == tmp_path
    assert folders.find_chat_folders(tmp_path) == ({}, [])


def test_profiles_are_read(tmp_path: Path) -> None:
    assert folders.read_profiles(tmp_path) == {}
    (tmp_path / ".ship/profile").mkdir(parents=True)
    (tmp_path / ".ship/profile/Primary.md").write_text("You are 小明.\n")
    (tmp_path / ".ship/profile/notes.txt").write_text("x")
    assert folders.read_profiles(tmp_path) == {"Primary.md": "You are 小明.\n".encode()}


@pytest.mark.parametrize("place", [".ship", ".ship/chat", f".ship/chat/{FOLDER}/contexts"])
def test_a_link_to_a_folder_is_refused(tmp_path: Path, place: str) -> None:
    trees.write(tmp_path / "real")
    trees.write(tmp_path / "here")
    linked = tmp_path / "here" / place
    linked.rename(tmp_path / "aside")
    linked.symlink_to(tmp_path / "real" / place)
    chat = tmp_path / "here/.ship/chat" / FOLDER
    before = trees.read(tmp_path / "real")

    with pytest.raises(InvalidInput, match="cbx does not follow the symbolic link"):
        folders.read_files(chat, folders.find_chat_folders(tmp_path / "here") and tmp_path / "here")
    with pytest.raises(InvalidInput, match="cbx does not follow the symbolic link"):
        written(chat, tmp_path / "here", {"contexts/active.jsonl": "x\n"}, replace=True)
    assert trees.read(tmp_path / "real") == before


def test_a_link_to_a_file_is_refused(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for target in (secret, tmp_path / "nowhere"):
        (chat / "memory/Primary.md").unlink()
        (chat / "memory/Primary.md").symlink_to(target)
        with pytest.raises(InvalidInput, match="cbx does not follow the symbolic link"):
            folders.read_files(chat, tmp_path)
        with pytest.raises(InvalidInput, match="cbx does not follow the symbolic link"):
            written(chat, tmp_path, FILES, replace=True)
    assert secret.read_text() == "secret"
    assert not (tmp_path / "nowhere").exists()


def test_a_named_pipe_is_refused(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    (chat / "memory/Primary.md").unlink()
    os.mkfifo(chat / "memory/Primary.md")
    with pytest.raises(InvalidInput, match=r"Primary\.md': it is not a regular file"):
        folders.read_files(chat, tmp_path)


def test_new_files_are_private_and_existing_files_keep_their_modes(tmp_path: Path) -> None:
    chat = tmp_path / ".ship/chat" / FOLDER
    assert written(chat, tmp_path, FILES, replace=False) == list(FILES)
    assert trees.read(chat) == trees.TREE
    assert stat.S_IMODE((chat / "memory/Primary.md").stat().st_mode) == 0o600
    assert stat.S_IMODE(chat.stat().st_mode) == 0o700
    (chat / "memory/Primary.md").chmod(0o644)
    written(chat, tmp_path, {**FILES, "memory/Primary.md": "new\n"}, replace=True)
    assert stat.S_IMODE((chat / "memory/Primary.md").stat().st_mode) == 0o644


def test_unchanged_and_foreign_files_are_not_written(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    (chat / "notes.txt").write_text("mine")
    assert written(chat, tmp_path, FILES, replace=False) == []
    assert (chat / "notes.txt").read_text() == "mine"


def test_a_loss_of_entries_is_refused_unless_replace_is_given(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    files = {**FILES, "contexts/active.jsonl": "", "memory/Primary.md": "other\n"}
    before = trees.read(chat)
    with pytest.raises(Conflict, match=r"active\.jsonl' has 2 entries .*; nothing was written"):
        written(chat, tmp_path, files, replace=False)
    assert trees.read(chat) == before
    assert written(chat, tmp_path, files, replace=True) == [
        "contexts/active.jsonl",
        "memory/Primary.md",
    ]


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    chat = trees.write(tmp_path)
    (chat / "contexts/.active.jsonl.new-1234").write_text("half")
    written(chat, tmp_path, {"contexts/active.jsonl": ""}, replace=True)
    assert sorted(os.listdir(chat / "contexts")) == ["active.jsonl", "archive", "index.json"]
    assert folders.read_files(chat, tmp_path)["contexts/active.jsonl"] == b""


def test_the_error_names_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / ".ship").write_text("a file")
    with pytest.raises(InvalidInput, match=r"cannot write .*active\.jsonl"):
        written(tmp_path / ".ship/chat" / FOLDER, tmp_path, {"contexts/active.jsonl": ""}, replace=False)
