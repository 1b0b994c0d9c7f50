package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// together is the longest time in milliseconds between two creations that a hook has judged twice, for them to count as
	// one overlap.
	together = 300
	// mostOverlap is the longest overlap in milliseconds that is aimed at where nobody is killed, and toleratedOverlap the
	// longest that is no fault: what is aimed at has no room for a machine that is late.
	mostOverlap      = 5000
	toleratedOverlap = 7000
)

// phase is what lies between two events of a stream, and what became of the writes that began in it. An event that
// begins with "kill" may have longer overlaps: nobody writes until the leader's lease has run out.
type phase struct {
	from                                             float64
	name                                             string
	writes, failed, judgements, missing, made, twice int
	// outage is the longest time in milliseconds in which every write that began failed.
	outage float64
	// longest is the longest overlap that began in it, in milliseconds, and of which hook.
	longest     float64
	longestHook string
}

type phases struct {
	all []*phase
	// doubled is the creations that each hook has judged more than once.
	doubled map[string][]streamed
	// ended is when each write began, and whether it failed.
	ended []ended
	// why is how often writes failed for each reason.
	why map[string]int
}

type ended struct {
	at     float64
	failed bool
}

// readPhases reads lines of milliseconds and words; none where no file is named.
func readPhases(events string) (phases, error) {
	found := phases{doubled: map[string][]streamed{}, why: map[string]int{}}
	if events == "" {
		return found, nil
	}
	text, err := os.ReadFile(events)
	if err != nil {
		return found, err
	}
	found.all = []*phase{{name: "before"}}
	for line := range strings.Lines(string(text)) {
		at, name, _ := strings.Cut(strings.TrimSpace(line), ",")
		from, err := strconv.ParseFloat(at, 64)
		if err != nil {
			return found, fmt.Errorf("%s: %w", events, err)
		}
		found.all = append(found.all, &phase{from: from, name: name})
	}
	return found, nil
}

func (p *phases) at(milliseconds float64) *phase {
	if len(p.all) == 0 {
		return &phase{}
	}
	after, _ := slices.BinarySearchFunc(p.all, milliseconds, func(one *phase, at float64) int {
		return cmp.Or(cmp.Compare(one.from, at), -1)
	})
	return p.all[max(0, after-1)]
}

func (p *phases) failed(one streamed) {
	if len(p.all) == 0 {
		return
	}
	at := p.at(one.At)
	at.writes++
	at.failed++
	p.ended = append(p.ended, ended{one.At, true})
	p.why[fmt.Sprint(one.Code, " ", unnamed(one))]++
}

// unnamed is why a write failed, without what is of this one alone.
func unnamed(one streamed) string {
	_, name, _ := strings.Cut(one.Write, " ")
	said := strings.ReplaceAll(one.Said, name, "NAME")
	said = regexp.MustCompile(`:[0-9]+`).ReplaceAllString(said, ":PORT")
	return said[:min(len(said), 240)]
}

// outages attributes each to the phase in which it began.
func (p *phases) outages() {
	slices.SortFunc(p.ended, func(a, b ended) int { return cmp.Compare(a.at, b.at) })
	for first := 0; first < len(p.ended); {
		last := first
		for last < len(p.ended) && p.ended[last].failed {
			last++
		}
		if last > first && last < len(p.ended) {
			at := p.at(p.ended[first].at)
			at.outage = max(at.outage, p.ended[last].at-p.ended[first].at)
		}
		first = last + 1
	}
}

// wrote counts a write that came to an end, given how often each hook has judged it.
func (p *phases) wrote(one streamed, asked map[string]int) {
	if len(p.all) == 0 {
		return
	}
	at := p.at(one.At)
	at.writes++
	p.ended = append(p.ended, ended{one.At, false})
	for _, hook := range one.Hooks {
		times := asked[hook+" "+one.Write]
		at.judgements += times
		if times == 0 {
			at.missing++
		}
		if !strings.HasPrefix(one.Write, "CREATE ") {
			continue
		}
		at.made++
		if times > 1 {
			at.twice++
			p.doubled[hook] = append(p.doubled[hook], one)
		}
	}
}

// overlaps attributes each to the phase in which it began.
func (p *phases) overlaps() {
	for hook, doubled := range p.doubled {
		slices.SortFunc(doubled, func(a, b streamed) int { return cmp.Compare(a.At, b.At) })
		for first := 0; first < len(doubled); {
			last := first
			for last+1 < len(doubled) && doubled[last+1].At-doubled[last].At <= together {
				last++
			}
			lasted := doubled[last].At - doubled[first].At
			if at := p.at(doubled[first].At); lasted > at.longest {
				at.longest, at.longestHook = lasted, hook
			}
			first = last + 1
		}
	}
}

// told prints a line for each phase; an error where one has an overlap that is too long.
func (p *phases) told() error {
	if len(p.all) == 0 {
		return nil
	}
	p.overlaps()
	p.outages()
	var late error
	fmt.Println("  at_s,phase,writes,failed,longest_outage_s,judgements,missing,creations_judged,of_them_twice,longest_overlap_s,of")
	for _, one := range p.all {
		fmt.Printf("  %.1f,%s,%d,%d,%.2f,%d,%d,%d,%d,%.2f,%s\n", one.from/1000, one.name, one.writes, one.failed, one.outage/1000, one.judgements,
			one.missing, one.made, one.twice, one.longest/1000, one.longestHook)
		if strings.HasPrefix(one.name, "kill") {
			continue
		}
		if one.longest > mostOverlap {
			fmt.Printf("  ######## MISSED: %s: %s was asked twice for %.2f s, the aim is 5\n", one.name, one.longestHook, one.longest/1000)
		}
		if one.longest > toleratedOverlap {
			late = fmt.Errorf("%s: %s was asked twice for %.1f s", one.name, one.longestHook, one.longest/1000)
		}
	}
	for _, why := range slices.SortedFunc(maps.Keys(p.why), func(a, b string) int { return cmp.Compare(p.why[b], p.why[a]) }) {
		fmt.Printf("  %d failed: %s\n", p.why[why], why)
	}
	return late
}
