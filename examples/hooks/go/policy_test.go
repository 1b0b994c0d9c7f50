package main

import "testing"

func TestATagOrADigestPinsAnImage(t *testing.T) {
	for image, expected := range map[string]bool{
		"nginx":                                false,
		"nginx:":                               false,
		"nginx:latest":                         false,
		"nginx:1.29":                           true,
		"registry.example.com:5000/nginx":      false,
		"registry.example.com:5000/nginx:1.29": true,
		"nginx@sha256:6b1c":                    true,
		"nginx:latest@sha256:6b1c":             true,
		"":                                     false,
	} {
		if pinned(image) != expected {
			t.Errorf("pinned(%q) is not %v", image, expected)
		}
	}
}
