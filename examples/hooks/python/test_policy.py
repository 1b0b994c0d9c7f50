"""python -m unittest"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "gen"))

import policy


class PinnedTest(unittest.TestCase):
    def test_a_tag_or_a_digest_pins_an_image(self):
        for image, expected in {
            "nginx": False,
            "nginx:": False,
            "nginx:latest": False,
            "nginx:1.29": True,
            "registry.example.com:5000/nginx": False,
            "registry.example.com:5000/nginx:1.29": True,
            "nginx@sha256:6b1c": True,
            "nginx:latest@sha256:6b1c": True,
            "": False,
        }.items():
            with self.subTest(image=image):
                self.assertEqual(policy.pinned(image), expected)


if __name__ == "__main__":
    unittest.main()
