"""The jobs of docs/fleet.md as they stand there, over a store of S3's interface: killed half-way
and started again, with two broken recordings, they all make the same table."""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import freehold_lab
import pyarrow.fs
import pyarrow.parquet
from moto.server import ThreadedMotoServer

TOP = pathlib.Path(__file__).resolve().parents[4]
PAGE = (TOP / "docs/fleet.md").read_text()
SAMPLE = TOP / "data/page-cache-churn.parquet"
GOOD = 10
# What differs from job to job, and from time to time.
OWN = ["command", "ns_per_event"]


def code(fence):
    found = re.findall(rf"^```{fence}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found[0]


def recordings():
    """Parts of the sample, each longer than the one before, a file cut short and an empty one."""
    events = pyarrow.parquet.read_table(SAMPLE)
    events = events.replace_schema_metadata({"pagetrace": '{"kernel": "6.18.5", "cpus": 2}'})
    for at in range(GOOD):
        to = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(events.slice(0, 6000 + 500 * at), to, compression="zstd")
        yield f"fleet/host{at:02}/trace.parquet", to.getvalue().to_pybytes()
    yield "fleet/cut/trace.parquet", to.getvalue().to_pybytes()[:20000]
    yield "fleet/empty/trace.parquet", b""


class Fleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        cls.server.start()
        cls.folder = tempfile.TemporaryDirectory()
        host, port = cls.server.get_host_and_port()
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://{host}:{port}", AWS_ACCESS_KEY_ID="x",
            AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1", RAY_worker_niceness="0",
        )
        cls.store = pyarrow.fs.FileSystem.from_uri("s3://fleet?allow_bucket_creation=true")[0]
        cls.store.create_dir("fleet")
        for key, content in recordings():
            with cls.store.open_output_stream(key) as to:
                to.write(content)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def tables(self, rows):
        """The tables that are there, with what says whether they were made again."""
        where = pyarrow.fs.FileSelector(rows, allow_not_found=True)
        files = self.there.get_file_info(where)
        whole = re.compile("[^_].*[.]parquet")
        return {one.path: one.mtime for one in files if whole.fullmatch(one.base_name)}

    def job(self, command, rows):
        """Kills the job when the third table is there, and lets it end the second time."""
        log = open(os.path.join(self.folder.name, "log"), "w+")
        self.addCleanup(log.close)
        how = dict(cwd=self.folder.name, stdout=log, stderr=log, start_new_session=True)
        first = subprocess.Popen(command, **how)
        while first.poll() is None and len(self.tables(rows)) < 3:
            time.sleep(0.05)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(first.pid, number)
                first.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        before = self.tables(rows)
        self.assertTrue(before, "it was killed half-way")
        # A job that had made them all when it was killed is left with one to make.
        if len(before) == GOOD + 2:
            last = max(before, key=before.get)
            self.there.delete_file(last)
            del before[last]
        subprocess.run(command, **how)
        log.seek(0)
        after = self.tables(rows)
        self.assertEqual(len(after), GOOD + 2, log.read())
        self.assertEqual(before, {path: after[path] for path in before}, "made once")
        tables = [pyarrow.parquet.read_table(path, filesystem=self.there) for path in after]
        table = pyarrow.concat_tables(tables).drop_columns(OWN)
        return table.sort_by([(name, "ascending") for name in ("path", "engine")])

    def python(self, name):
        # Two at a time.
        setup = code("python").replace("s3://rows", f"s3://rows-{name}")
        text = setup + code(f"python {name}").replace("ray.init()", "ray.init(num_cpus=2)")
        self.there = self.store
        self.store.create_dir(f"rows-{name}")
        return self.job([sys.executable, "-c", text], f"rows-{name}")

    def test_each_job_makes_the_same_table(self):
        keys = os.path.join(self.folder.name, "keys")
        with open(keys, "w") as to:
            to.writelines(key + "\n" for key, _ in recordings())
        self.there = pyarrow.fs.LocalFileSystem()
        shell = self.job(["bash", "-c", code("sh")], os.path.join(self.folder.name, "rows"))
        bad = shell.filter(pyarrow.compute.field("status") == "unreadable")
        self.assertEqual(
            bad["path"].to_pylist(), ["fleet/cut/trace.parquet", "fleet/empty/trace.parquet"]
        )
        self.assertNotIn(None, bad["error"].to_pylist())
        self.assertEqual(len(shell), 5 * GOOD + 2)
        if shutil.which("parallel"):
            parallel = re.sub("# Or GNU parallel: (.*)\n.*", r"\1", code("sh"))
            parallel = parallel.replace("rows", "others")
            others = self.job(["bash", "-c", parallel], os.path.join(self.folder.name, "others"))
            self.assertTrue(others.equals(shell), "GNU parallel")
        # What one table is made of is what all are made of.
        found = glob.glob(os.path.join(self.folder.name, "rows", "*.parquet"))
        page = subprocess.run(
            ["freehold", "report", "-o", "-", *found], check=True, capture_output=True, text=True
        )
        self.assertIn("10 recordings; of 10 the machine is not known; 2 could not be read.", page.stdout)
        names = ["ray", "dask"] + ["spark"] * ("FREEHOLD_SPARK" in os.environ)
        for name in names:
            with self.subTest(name):
                self.assertTrue(self.python(name).equals(shell), name)


if __name__ == "__main__":
    unittest.main()
