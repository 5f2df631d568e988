# SPDX-License-Identifier: Apache-2.0
"""bench/studies/paco.py with a program that answers as `hone train` would."""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "studies"))
import paco
import split_images
import train_run

METHODS, GRID, STEPS = 4, 12, 7


def t_probability(t, degrees):
    """P(|T| < t) of Student's t, by Simpson's rule over its density."""
    scale = math.gamma((degrees + 1) / 2) / (
        math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    n = 4000
    value = [scale * (1 + (t * i / n) ** 2 / degrees) ** (-(degrees + 1) / 2)
             for i in range(n + 1)]
    return 2 * t / n / 3 * (value[0] + value[-1] + 4 * sum(value[1::2]) + 2 * sum(value[2:-1:2]))


class Arithmetic(unittest.TestCase):
    def test_intervals_equal_those_computed_by_hand(self):
        # Differences 1, 1, 2: mean 4/3, deviation 1/sqrt(3), error 1/3.
        mean, half = train_run.paired_difference([3, 5, 9], [2, 4, 7])
        self.assertAlmostEqual(mean, 4 / 3)
        self.assertAlmostEqual(half, 4.303 / 3)
        # Differences -2, -1, 0, 1, 2: mean 0, variance 10/4, error sqrt(1/2).
        mean, half = train_run.paired_difference([0, 0, 0, 0, 0], [2, 1, 0, -1, -2])
        self.assertAlmostEqual(mean, 0)
        self.assertAlmostEqual(half, 2.776 * math.sqrt(0.5))
        with self.assertRaises(ValueError):
            train_run.paired_difference([1, 2, 3], [1, 2])

    def test_quantiles_leave_a_fortieth_on_each_side(self):
        for degrees, t in enumerate(train_run.T_975, 1):
            self.assertLess(t_probability(t - 0.0005, degrees), 0.95)
            self.assertGreater(t_probability(t + 0.0005, degrees), 0.95)

    def test_steps_fill_the_budget_and_no_more(self):
        # 10 steps in 4 s and 40 in 10 s: 0.2 s a step and 2 s beside. 10 minutes for 30 runs leave
        # 20 s a run.
        self.assertEqual(paco.steps_within(10, 30, (4, 10)), 90)
        with self.assertRaisesRegex(train_run.RunFailed, "more than 1 minutes"):
            paco.steps_within(1, 30, (4, 10))


class Splits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data = pathlib.Path(self.folder.name) / "set"

    def fill(self, part, images):
        for label in ("a", "b"):
            (self.data / part / label).mkdir(parents=True)
            for number in range(images):
                (self.data / part / label / f"{part[-3:]}{number}.PNG").write_text(label)
        (self.data / part / ".hidden").mkdir()
        (self.data / part / ".hidden" / "0.png").write_text("")
        (self.data / part / "a" / "notes.txt").write_text("")

    def linked(self, name):
        """The originals of each class in train/ and in test/."""
        split_images.link_splits(self.data, self.data.parent / "links")
        top = self.data.parent / "links" / name
        return [{label.name: {os.path.realpath(file) for file in label.iterdir()}
                 for label in (top / part).iterdir()} for part in ("train", "test")]

    def check(self, final_train, final_test, grid_train, grid_test):
        """Counts of each class; and no image that reports is one that chooses or trains."""
        grid, final = self.linked("grid"), self.linked("final")
        for label in ("a", "b"):
            counts = [len(part[label]) for part in (*final, *grid)]
            self.assertEqual(counts, [final_train, final_test, grid_train, grid_test])
            chooses = grid[0][label] | grid[1][label]
            self.assertFalse(final[1][label] & (chooses | final[0][label]))
            self.assertFalse(grid[0][label] & grid[1][label])
        self.assertEqual(grid[0].keys(), {"a", "b"})
        return grid, final

    def test_settings_are_chosen_on_a_fifth_of_the_training_images(self):
        self.fill("train", 10)
        self.fill("test", 4)
        grid, final = self.check(10, 4, 8, 2)
        self.assertEqual(final[0]["a"], grid[0]["a"] | grid[1]["a"])
        self.assertTrue(all("/test/a/" in file for file in final[1]["a"]))

    def test_val_chooses_where_test_reports(self):
        for part, images in (("train", 10), ("test", 4), ("val", 3)):
            self.fill(part, images)
        grid, _ = self.check(10, 4, 10, 3)
        self.assertTrue(all("/val/b/" in file for file in grid[1]["b"]))

    def test_a_set_without_parts_is_split_in_three(self):
        self.fill("", 25)
        self.check(20, 5, 16, 4)

    def test_a_class_of_one_image_is_refused(self):
        self.fill("train", 1)
        self.fill("test", 1)
        with self.assertRaisesRegex(ValueError, "class a has too few"):
            self.linked("grid")


class DryRun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = pathlib.Path(self.folder.name)
        self.program = self.home / "hone"
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S '
                                f'"{ROOT / "tests/tools/fake_train.py"}" "$@"\n')
        self.program.chmod(0o755)
        (self.home / "init.safetensors").write_text("weights")
        self.plan()

    def plan(self, **happens):
        (self.home / "plan.json").write_text(json.dumps(happens))
        (self.home / "calls.jsonl").write_text("")

    def study(self, *more, seeds=2, data="leaves", length=("--steps", str(STEPS))):
        return subprocess.run(
            [sys.executable, str(ROOT / "bench/studies/paco.py"), "--program", str(self.program),
             "--data", data, "--init", str(self.home / "init.safetensors"), "--out",
             str(self.home / "out"), *length, "--seeds", str(seeds), "--threads", "1", *more],
            env={**os.environ, "FAKE_TRAIN": str(self.home)}, capture_output=True, text=True)

    def calls(self):
        lines = (self.home / "calls.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def report(self):
        return json.loads((self.home / "out" / "report.json").read_text(encoding="utf-8"))

    def test_grid_then_paired_seeds_with_equal_budgets(self):
        done = self.study(seeds=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = self.calls()
        self.assertEqual(len(calls), GRID + 3 * METHODS)
        for call in calls[:GRID]:
            self.assertEqual((call["set"]["trainer.seed"], call["set"]["data.leaves.seed"]),
                             ("1", "1"))
        seeds = [call["set"]["trainer.seed"] for call in calls[GRID:]]
        self.assertEqual(seeds, [seed for seed in "234" for _ in range(METHODS)])
        self.assertEqual({call["set"]["data.leaves.seed"] for call in calls[GRID:]}, {"2"})
        self.assertEqual([call["method"] for call in calls[GRID:]], list(paco.METHODS) * 3)
        shared = [key for key in calls[0]["set"] if key.split(".")[0] not in ("loss", "paco")
                  and key not in ("lr.peak", "trainer.seed", "data.leaves.seed")]
        self.assertIn("trainer.steps", shared)
        self.assertIn("trainer.micro_batch", shared)
        for call in calls:
            self.assertEqual([call["set"][key] for key in shared],
                             [calls[0]["set"][key] for key in shared])
            self.assertEqual(call["set"].get("loss.views"),
                             "2" if call["verb"] == "vision" else None)
            self.assertEqual((call["threads"], call["init"]),
                             (1, str(self.home / "init.safetensors")))
        self.assertEqual(len({call["out"] for call in calls}), len(calls))

    def test_the_final_seeds_have_no_say_in_the_choice(self):
        self.assertEqual(self.study().returncode, 0)
        # The third setting is the best of the grid and the worst on the final data.
        chosen = self.report()["chosen"]
        self.assertEqual(chosen["ce"], {"lr.peak": 0.01})
        self.assertEqual(chosen["paco"], {"lr.peak": 0.003, "paco.lambda_pac": 1})
        for call in self.calls()[GRID:]:
            own = chosen[call["method"]]
            self.assertEqual({key: float(call["set"][key]) for key in own}, own)

    def test_tables_have_the_differences_of_the_pairs(self):
        done = self.study(seeds=3)
        # Seeds 2, 3, 4: part contrast is 2 % ahead, and by 0.2, 0 and 0.1 % more.
        mean, half = 2.1, 4.303 * 0.1 / math.sqrt(3)
        self.assertIn(f"| paco | 52.10 | 52.00 to 52.20 | 2 ok, 1 shrinking | {mean:+.2f} "
                      f"({mean - half:+.2f} to {mean + half:+.2f}) |", done.stdout)
        self.assertIn("| ce | 50.00 | 50.00 to 50.00 | 3 ok |  |", done.stdout)
        self.assertIn("| supcon | 51.00 | 51.00 to 51.00 | 3 ok | +1.00 (+1.00 to +1.00) |",
                      done.stdout)
        self.assertIn("3 classes, seeds 2 to 4", done.stdout)

    def test_a_killed_study_goes_on_without_repeating_runs(self):
        for kill in (3, GRID + 2):
            with self.subTest(kill=kill):
                self.setUp()
                self.plan(die=kill)
                self.assertEqual(self.study().returncode, -signal.SIGKILL)
                first = self.calls()
                self.assertEqual(len(first), kill)
                done = self.study()
                self.assertEqual(done.returncode, 0, done.stderr)
                second = self.calls()[kill:]
                self.assertEqual(second[0]["out"], first[-1]["out"])
                self.assertTrue(second[0]["resume"])
                self.assertFalse(any(call["resume"] for call in first + second[1:]))
                finished = [call["out"] for call in first[:-1] + second]
                self.assertEqual(len(finished), GRID + 2 * METHODS)
                self.assertEqual(len(set(finished)), len(finished))
                before = self.report()
                self.assertEqual(self.study().stdout, done.stdout)
                self.assertEqual(self.report(), before)
                self.assertEqual(len(self.calls()), kill + len(second))

    def test_an_interrupt_lets_the_run_save(self):
        self.plan(interrupt=2)
        self.assertEqual(self.study().returncode, 128 + signal.SIGTERM)
        stopped = self.calls()[-1]["out"]
        self.assertTrue((pathlib.Path(stopped) / "saved").exists())
        done = self.study()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call["out"] for call in self.calls() if call["resume"]], [stopped])

    def test_the_budget_is_measured_once(self):
        length = ("--minutes", "10")  # Half a minute a run: far above what a busy machine adds.
        self.plan(die=5)
        self.assertEqual(self.study(length=length).returncode, -signal.SIGKILL)
        steps = json.loads((self.home / "out" / "study.json").read_text())["steps"]
        self.assertGreater(steps, 0)
        done = self.study(length=length)
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = self.calls()
        for call, measured in zip(calls, paco.CALIBRATION_STEPS):
            self.assertEqual((call["method"], call["fresh"]), ("paco", True))
            self.assertEqual(call["set"]["trainer.steps"], str(measured))
        self.assertEqual({call["set"]["trainer.steps"] for call in calls[2:]}, {str(steps)})
        self.assertFalse(any(call["fresh"] for call in calls[2:]))

    def test_ablations_are_added_to_a_finished_study(self):
        self.assertEqual(self.study().returncode, 0)
        before = len(self.calls())
        done = self.study("--ablations")
        self.assertEqual(done.returncode, 0, done.stderr)
        added = self.calls()[before:]
        self.assertEqual(len(added), 2 * len(paco.ABLATIONS))
        self.assertEqual({call["set"]["trainer.seed"] for call in added}, {"2", "3"})
        self.assertEqual([call["set"]["paco.eta_soc"] for call in added
                          if "paco.eta_soc" in call["set"]], ["0"] * 4)
        self.assertIn("| preset compat |", done.stdout)

    def test_a_folder_of_images_reports_on_its_own_test_images(self):
        for part, images in (("train", 10), ("test", 2)):
            for label in "ab":
                (self.home / "set" / part / label).mkdir(parents=True)
                for number in range(images):
                    (self.home / "set" / part / label / f"{number}.jpg").write_text("")
        done = self.study(data=str(self.home / "set"))
        self.assertEqual(done.returncode, 0, done.stderr)
        links = self.home / "out" / "data"
        self.assertEqual([call["data"] for call in self.calls()],
                         [str(links / "grid")] * GRID + [str(links / "final")] * 2 * METHODS)
        self.assertEqual(self.report()["images"], {"grid": [16, 4], "final": [20, 4]})

    def test_a_diverged_run_counts_as_nothing_learned(self):
        self.plan(diverge=3)
        done = self.study()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.report()["chosen"]["ce"], {"lr.peak": 0.003})
        self.assertIn("| ce | lr.peak=0.01 | 0.00 | inf | diverged |  |", done.stdout)

    def test_a_wrong_option_ends_the_study(self):
        self.plan(refuse=2)
        done = self.study()
        self.assertEqual(done.returncode, 1)
        self.assertIn("something is wrong (status 2)", done.stderr)
        self.assertEqual(len(self.calls()), 2)

    def test_another_plan_needs_another_folder(self):
        self.assertEqual(self.study().returncode, 0)
        before = len(self.calls())
        for change in ({"seeds": 3}, {"length": ("--steps", "8")}):
            done = self.study(**change)
            self.assertEqual(done.returncode, 1)
            self.assertIn("choose another --out", done.stderr)
        (self.home / "init.safetensors").write_text("others")
        self.assertIn("choose another --out", self.study().stderr)
        self.assertEqual(len(self.calls()), before)


if __name__ == "__main__":
    unittest.main()
