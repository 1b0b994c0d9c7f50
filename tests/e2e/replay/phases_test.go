package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// overlapping is a tally of creations every 100 ms from the beginning, of which these are judged twice.
func overlapping(t *testing.T, name string, from, to int) phases {
	t.Helper()
	events := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(events, []byte(fmt.Sprintf("1000,%s\n9000,after\n", name)), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := readPhases(events)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		times := 1
		if n >= from && n <= to {
			times = 2
		}
		write := fmt.Sprintf("CREATE %d", n)
		found.wrote(streamed{Write: write, Hooks: []string{"one"}, At: float64(n * 100)}, map[string]int{"one " + write: times})
	}
	return found
}

func TestAnOverlapIsOfThePhaseInWhichItBegan(t *testing.T) {
	found := overlapping(t, "taken", 80, 95)
	if err := found.told(); err != nil {
		t.Error(err)
	}
	taken, after := found.all[1], found.all[2]
	if taken.writes != 80 || taken.twice != 10 || after.twice != 6 || taken.longest != 1500 || after.longest != 0 {
		t.Errorf("%+v %+v", taken, after)
	}
}

func TestALongOverlapIsAFaultWhereNobodyWasKilled(t *testing.T) {
	for name, fault := range map[string]bool{"taken": true, "kill leader": false} {
		found := overlapping(t, name, 10, 85)
		if err := found.told(); (err != nil) != fault {
			t.Errorf("%s: %v", name, err)
		}
	}
}
