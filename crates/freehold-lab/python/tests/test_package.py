"""The package beside the command: the same rows, the same words, and other threads go on."""

import doctest
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import freehold_lab
import pyarrow.parquet

TOP = pathlib.Path(__file__).resolve().parents[4]
SAMPLE = str(TOP / "data/page-cache-churn.parquet")
ENGINES = ["vanilla", "freehold"]


def freehold(*words):
    return subprocess.run(["freehold", *words], capture_output=True, text=True)


class Package(unittest.TestCase):
    def test_rows_are_those_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            rows, words = f"{folder}/rows", [word for one in ENGINES for word in ("-e", one)]
            freehold("replay", *words, "--format", "parquet", "-o", rows, SAMPLE)
            told = pyarrow.parquet.read_table(rows)
        found = freehold_lab.replay(SAMPLE, engines=ENGINES)
        self.assertEqual(found.schema, told.schema)
        own = ["command", "ns_per_event"]
        self.assertTrue(found.drop_columns(own).equals(told.drop_columns(own)))
        # The command that the row names is one: it makes the row again.
        line = found["command"][0].as_py()
        self.assertEqual(line, f"freehold replay --no-progress -j 1 --format parquet -o - {' '.join(words)} {SAMPLE}")

    def test_bytes_and_streams_are_recordings(self):
        packed = self.packed()
        told = freehold_lab.replay(packed, engines=ENGINES, name="host7")
        self.assertEqual(told["path"].to_pylist(), ["host7"] * 2)
        self.assertEqual(told["machine_origin"].to_pylist(), ["recorded"] * 2)
        beside = freehold_lab.replay(SAMPLE, engines=ENGINES)
        for column in ("zone_lock_work", "unusable_index_mean", "free_blocks_end"):
            self.assertEqual(told[column], beside[column])
        self.assertIn(b"pagetrace-files", freehold_lab.read(packed).schema.metadata)
        events = freehold_lab.read(SAMPLE)
        self.assertEqual(len(events), pyarrow.parquet.read_metadata(SAMPLE).num_rows)

    def packed(self):
        with tempfile.TemporaryDirectory() as folder:
            freehold("pack", "-o", f"{folder}/one", SAMPLE)
            return pathlib.Path(folder, "one").read_bytes()

    def test_errors_have_the_words_of_the_command(self):
        for words, call in [
            (["nowhere.parquet"], lambda: freehold_lab.replay("nowhere.parquet")),
            (["-e", "vanila", SAMPLE], lambda: freehold_lab.replay(SAMPLE, engines=["vanila"])),
        ]:
            with self.assertRaises(freehold_lab.FreeholdError) as caught:
                call()
            said = freehold("replay", *words).stderr
            self.assertIn(str(caught.exception).splitlines()[0].removeprefix("error: "), said)
        row = freehold_lab.replay(b"PAR1", name="cut", errors="row").to_pylist()[0]
        self.assertEqual((row["status"], row["path"]), ("unreadable", "cut"))
        with self.assertRaises(freehold_lab.FreeholdError) as caught:
            freehold_lab.replay(b"PAR1", name="cut")
        self.assertIn(row["error"], str(caught.exception))

    def test_other_threads_go_on_meanwhile(self):
        sys.setswitchinterval(1e-5)
        count, is_over = 0, False

        def others():
            nonlocal count
            while not is_over:
                count += 1

        thread = threading.Thread(target=others)
        thread.start()
        freehold_lab.replay(SAMPLE, engines=ENGINES)
        before, is_over = count, True
        thread.join()
        self.assertGreater(before, 100_000)

    def test_examples_are_as_they_stand(self):
        known = {**vars(freehold_lab), "recording": SAMPLE}
        self.assertEqual(doctest.testmod(freehold_lab, globs=known).failed, 0)


if __name__ == "__main__":
    unittest.main()
