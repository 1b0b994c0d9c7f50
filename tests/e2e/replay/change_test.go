package main

import (
	"testing"
	"time"
)

func TestAChangeHasToBeInForceInTimeAndToStaySo(t *testing.T) {
	moved := ownersChange{name: "moved", before: []string{"a"}, after: []string{"b"}}
	type try struct {
		at   float64
		said string
	}
	for name, trial := range map[string]struct {
		tries  []try
		killed bool
		fault  bool
	}{
		"in time":               {[]try{{0, "a"}, {1, "a b"}, {2, "b"}, {5.5, "b"}}, false, false},
		"late":                  {[]try{{0, "a"}, {2, "b"}, {5.5, "a"}}, false, true},
		"both for too long":     {[]try{{0, "a"}, {2, "b"}, {5.5, "a b"}}, false, true},
		"never":                 {[]try{{0, "a"}, {2, "a"}}, false, true},
		"judged by nobody":      {[]try{{0, "a"}, {1, ""}, {2, "b"}}, false, true},
		"failed":                {[]try{{0, "a"}, {1, "failed: 500"}, {2, "b"}}, false, true},
		"failed, and was to":    {[]try{{0, "a"}, {1, "failed: 500"}, {2, "b"}}, true, false},
		"by nobody as one dies": {[]try{{0, "a"}, {1, ""}, {2, "b"}}, true, true},
	} {
		found := tries{bound: freshness}
		for _, try := range trial.tries {
			found.add(moved, time.Duration(try.at*float64(time.Second)), try.said, trial.killed)
		}
		if err := found.told("trial"); (err != nil) != trial.fault {
			t.Errorf("%s: %v", name, err)
		}
	}
}
