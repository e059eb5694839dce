"""Lines that were removed: moved, rewritten, or deleted."""

from __future__ import annotations

from bench.deleted import Removed, count, hunks_in

DIFF = """\
diff --git a/one.py b/one.py
--- a/one.py
+++ b/one.py
@@ -1,4 +1,1 @@
-    moved = 1
-
-gone = 2
-changed = 3
+changed = 4
@@ -9,2 +5,0 @@
--- a comment of two dashes
-moved = 1
diff --git a/two.py b/two.py
--- a/two.py
+++ b/two.py
@@ -0,0 +1,1 @@
+moved = 1
"""


def test_each_removed_line_is_of_one_kind() -> None:
    hunks = hunks_in(DIFF)
    assert [len(hunk.removed) for hunk in hunks] == [3, 2, 0]
    # `moved` was removed twice and added once; of the two others of the first hunk one has another in its place.
    assert count(hunks, hunks) == Removed(moved=1, rewritten=1, deleted=3)
    assert count(hunks[:2], hunks[:2]) == Removed(moved=0, rewritten=1, deleted=4)
