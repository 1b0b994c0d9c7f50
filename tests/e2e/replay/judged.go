package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// judged compares what was written with what each hook has judged: every write must have come to what it should, and
// every hook that it concerns must have judged it. `log` has a line for each judgement, of all hooks: see ../hook/main.go.
// Where `once` is said, creations have to be judged once. Where `killed` is, a write may have failed because whoever was to
// decide was killed in the middle of it: it did not happen, and nobody had to judge it. A table of every write goes to
// `out`, where that is named; and where `events` names the phases, what became of the writes of each, and how long a hook
// was asked twice in a row, is printed as well.
func judged(writes, log, name, out, events string, once, killed bool) error {
	asked, err := readJudged(log)
	if err != nil {
		return err
	}
	file, err := os.Open(writes)
	if err != nil {
		return err
	}
	defer file.Close()
	table := io.Discard
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer file.Close()
		table = file
	}
	fmt.Fprintln(table, "at_ms,took_ms,write,want,code,hooks,judgements,missing")
	found := tally{killed: killed}
	if found.phases, err = readPhases(events); err != nil {
		return err
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var one streamed
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("%s: %w", writes, err)
		}
		found.add(one, asked, table)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return found.told(name, once)
}

func readJudged(log string) (map[string]int, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	asked := map[string]int{}
	for line := range strings.Lines(string(text)) {
		asked[strings.TrimSuffix(line, "\n")]++
	}
	return asked, nil
}

// tally is what became of all writes.
type tally struct {
	killed bool
	// failed is how many writes did not happen because somebody was killed, or were of objects that were so never made.
	failed                                           int
	writes, refused, surprises, unjudged, once, more int
	// made is how many judgements creations need, madeMore those of them that came more than once. (kube-apiserver asks
	// again about changes and deletions of what it has an old copy of.)
	made, madeMore int
	took           []float64
	end            float64
	first          []string
	phases         phases
}

func (t *tally) add(one streamed, asked map[string]int, table io.Writer) {
	t.writes++
	t.took = append(t.took, one.Took)
	t.end = max(t.end, one.At+one.Took)
	complain := func(what string) {
		if len(t.first) < 10 {
			t.first = append(t.first, fmt.Sprintf("%s at %.0f ms: %s", one.Write, one.At, what))
		}
	}
	if one.Code != one.Want && !(t.killed && t.isFailed(one)) {
		t.surprises++
		complain(fmt.Sprintf("%d, not %d: %s", one.Code, one.Want, shorten(one.Said)))
	} else if one.Want >= 400 {
		t.refused++
	}
	if t.killed && t.isFailed(one) {
		t.failed++
		t.phases.failed(one)
		fmt.Fprintf(table, "%.3f,%.3f,%s,%d,%d,0,0,0\n", one.At, one.Took, one.Write, one.Want, one.Code)
		return
	}
	t.phases.wrote(one, asked)
	judgements, missing := 0, t.unjudged
	created := strings.HasPrefix(one.Write, "CREATE ")
	for _, hook := range one.Hooks {
		if created {
			t.made++
		}
		judgements += asked[hook+" "+one.Write]
		switch asked[hook+" "+one.Write] {
		case 0:
			t.unjudged++
			complain("not judged by " + hook)
		case 1:
			t.once++
		default:
			t.more++
			if created {
				t.madeMore++
			}
		}
	}
	fmt.Fprintf(table, "%.3f,%.3f,%s,%d,%d,%d,%d,%d\n", one.At, one.Took, one.Write, one.Want, one.Code, len(one.Hooks), judgements, t.unjudged-missing)
}

func (t *tally) isFailed(one streamed) bool {
	return one.Code != one.Want && (one.Code >= 500 || one.Code == 404)
}

func (t *tally) told(name string, once bool) error {
	slices.Sort(t.took)
	at := func(share float64) float64 { return t.took[min(len(t.took)-1, int(share*float64(len(t.took))))] }
	if t.writes < 20 {
		return fmt.Errorf("%s: only %d writes", name, t.writes)
	}
	fmt.Printf("%s: %d writes in %.1f s (%.0f a second): %d came to something else, %d of %d judgements missing; "+
		"%d refused as they should be, %d judged more than once, %d of them creations; p50 %.1f ms, p99 %.1f ms, slowest %.1f ms\n",
		name, t.writes, t.end/1000, float64(t.writes)*1000/t.end, t.surprises, t.unjudged, t.unjudged+t.once+t.more,
		t.refused, t.more, t.madeMore, at(0.5), at(0.99), t.took[len(t.took)-1])
	if t.killed {
		fmt.Printf("  %d writes failed as somebody was killed\n", t.failed)
	}
	for _, one := range t.first {
		fmt.Println("  " + one)
	}
	late := t.phases.told()
	if t.failed*20 > t.writes {
		return fmt.Errorf("%d of %d writes failed", t.failed, t.writes)
	}
	if t.surprises+t.unjudged > 0 {
		return fmt.Errorf("%d writes came to something else, %d judgements are missing", t.surprises, t.unjudged)
	}
	if late != nil {
		return late
	}
	// A write under way as Gatepost hands over may be asked about again, and no more than that.
	if once && t.madeMore*10 > t.made {
		return fmt.Errorf("%d of %d judgements of creations came more than once", t.madeMore, t.made)
	}
	return nil
}
