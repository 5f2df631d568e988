# SPDX-License-Identifier: Apache-2.0
import math
import pathlib
import re
import sys
import unittest
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import draw_front


def variant(name, size, bits, interval):
    quality = {"tokens": 1000, "bytes": 2000, "bits_per_byte": bits, "ppl_ratio_ci": interval}
    return {"name": name, "bytes": size, "quality": quality}


REPORT = {"floor_bits_per_byte": 0.1,
          "variants": [variant("fp32", 4000000, 0.102, [1, 1]),
                       variant("int4 <&>", 1000000, 0.103, [1.001, 1.003])]}


class DrawFrontTest(unittest.TestCase):
    def test_intervals_are_those_of_the_perplexity_ratio_in_bits_per_byte(self):
        name, size, bits, low, high = draw_front.read_points(REPORT)[1]
        self.assertEqual((name, size, bits), ("int4 <&>", 1, 0.103))
        self.assertAlmostEqual(low, 0.102 + math.log2(1.001) / 2)
        self.assertAlmostEqual(high, 0.102 + math.log2(1.003) / 2)

    def test_smaller_is_further_left_and_better_further_down(self):
        page = xml.dom.minidom.parseString(draw_front.draw(REPORT))
        circles = [(float(c.getAttribute("cx")), float(c.getAttribute("cy")))
                   for c in page.getElementsByTagName("circle")]
        (large_x, large_y), (small_x, small_y) = circles
        self.assertLess(small_x, large_x)
        self.assertLess(small_y, large_y)
        floor = [line for line in page.getElementsByTagName("line")
                 if line.getAttribute("class") == "floor"]
        self.assertGreater(float(floor[0].getAttribute("y1")), large_y)

    def test_everything_lies_inside_the_picture(self):
        text = draw_front.draw(REPORT)
        for axis, limit in (("x", draw_front.WIDTH), ("y", draw_front.HEIGHT)):
            for value in re.findall(rf' c?{axis}[12]?="([\d.-]+)"', text):
                self.assertTrue(0 <= float(value) <= limit, value)

    def test_labels_meet_neither_marks_nor_each_other(self):
        marks = [(100, 50, 60), (120, 52, 62), (170, 20, 70)]
        labels = draw_front.place_labels(["first", "second", "third"], marks)
        boxes = [(at - 5, top, at + 5, bottom) for at, top, bottom in marks]
        boxes += [(at - 4 * len(name), y - 12, at + 4 * len(name), y + 3) for name, at, y in labels]
        for i, a in enumerate(boxes):
            for b in boxes[max(i + 1, len(marks)):]:
                apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
                self.assertTrue(apart, (a, b))

    def test_ticks_are_round_numbers(self):
        self.assertEqual([round(t, 4) for t in draw_front.ticks_between(0.0999, 0.1021)],
                         [0.1, 0.1005, 0.101, 0.1015, 0.102])
        self.assertEqual(draw_front.log_ticks(0.9, 6), [1, 2, 3, 5])


if __name__ == "__main__":
    unittest.main()
