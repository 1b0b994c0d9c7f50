package main

import "testing"

func TestAStepIsSeenAsItIsReachedAndNotBefore(t *testing.T) {
	free, taken := standing{client: "a"}, standing{carries: true, client: "a"}
	type look struct {
		now       standing
		announced bool
		reached   bool
	}
	for step, looks := range map[string][]look{
		// An announcement from before does not count.
		"announce": {{free, true, false}, {free, false, false}, {free, true, true}},
		"take":     {{free, false, false}, {free, true, false}, {taken, true, true}},
		"change":   {{taken, true, false}, {free, true, false}, {standing{carries: true, client: "b"}, true, true}},
		"drop":     {{free, false, false}, {taken, true, false}, {free, true, true}},
	} {
		seen := steps{step: step, first: map[string]standing{}, quiet: map[string]bool{}}
		for n, look := range looks {
			if reached := seen.reached("w", look.now, true, look.announced); reached != look.reached {
				t.Errorf("%s, look %d: %v", step, n, reached)
			}
		}
	}
}

func TestAWebhookHasTheNameInLeasesThatGatepostGivesIt(t *testing.T) {
	if id := idOf("validating/c/w"); id != "029ee3d38f24345f" {
		t.Error(id)
	}
}
