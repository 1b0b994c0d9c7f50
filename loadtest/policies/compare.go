package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// figure is a line of the table: a way of each side, and the ratio that is wanted.
type figure struct {
	cell         string
	ours, inTree string
	label        string
	atLeast      float64
}

// figures are judged where atLeast is not 0. The target of a comparison and of a condition is a share of the in-tree
// time; it is written here as its inverse.
var figures = []figure{
	{"pod-security-4k", "bytes", "decoded", "16 Pod Security policies, Pod of 4 KiB", 10},
	{"pod-security-4k", "decide", "decoded", "the same, review read before", 0},
	{"pod-security-4k", "bytes", "internal", "the same, in-tree converts the object", 0},
	{"pod-security-4k", "bytes", "bytes", "the same, in-tree decodes and converts it", 0},
	{"pod-security-50k", "bytes", "decoded", "16 Pod Security policies, Pod of 50 KiB", 10},
	{"pod-security-50k", "decide", "decoded", "the same, review read before", 0},
	{"pod-security-50k", "bytes", "internal", "the same, in-tree converts the object", 0},
	{"pod-security-50k", "bytes", "bytes", "the same, in-tree decodes and converts it", 0},
	{"many-all-match", "bytes", "decoded", "1,024 policies, all match", 25},
	{"many-all-match", "bytes", "internal", "the same, in-tree converts the object", 0},
	{"many-4-match", "bytes", "decoded", "1,024 policies, 4 match", 50},
	{"many-4-match", "bytes", "internal", "the same, in-tree converts the object", 0},
	{"comparison-request", "expression", "expression", "a comparison with a field of the request", 3},
	{"comparison", "expression", "expression", "a comparison with the object's name", 3},
	{"comparison-late", "expression", "expression", "a comparison with the spec's last field", 3},
	{"excluded", "expression", "condition", "a match condition that excludes", 10},
	{"excluded", "bytes", "decoded", "the same, the whole review", 0},
	{"unmatched", "bytes", "decoded", "a policy about other resources", 0},
}

// sample is how long a way is measured at a time, in CPU time.
const sample = 100 * time.Millisecond

// inTreeSample is the same for the in-tree side. With many policies its heap is so large that it takes seconds until
// the garbage collector has run a few times.
func inTreeSample(cell string) time.Duration {
	if strings.HasPrefix(cell, "many-") {
		return 30 * sample
	}
	return sample
}

// memoryRuns is how often memory is measured: it hardly differs.
const memoryRuns = 3

// results is what is written to a file: all that was measured.
type results struct {
	Date        string                          `json:"date"`
	Commit      string                          `json:"commit"`
	Processor   string                          `json:"processor"`
	Cores       int                             `json:"cores"`
	Go          string                          `json:"go"`
	Load        [2]string                       `json:"loadAverages"`
	Ours        map[string]map[string][]float64 `json:"oursMicroseconds"`
	InTree      map[string]map[string][]float64 `json:"inTreeMicroseconds"`
	Compilation []map[string]float64            `json:"compilation"`
	// Memory is as Compilation, of processes that give freed memory back at once.
	Memory []map[string]float64 `json:"memory"`
	Table  []row                `json:"table"`
}

// row is a figure with its medians and the 95 % interval of the median ratio.
type row struct {
	Figure string  `json:"figure"`
	InTree float64 `json:"inTree"`
	Ours   float64 `json:"ours"`
	Ratio  float64 `json:"ratio"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Target string  `json:"target,omitempty"`
	Met    string  `json:"met,omitempty"`
}

func compare(arguments []string) {
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	ours := flags.String("ours", "", "the program of benches/policies.rs")
	folder := flags.String("folder", "", "the folder of the cells")
	into := flags.String("into", "", "the file that the results of all cells are written to")
	commit := flags.String("commit", "", "the commit that is measured")
	repetitions := flags.Int("reps", 15, "repetitions, at least 6")
	only := flags.String("only", "", "the cells to measure, separated by commas")
	must(flags.Parse(arguments))
	self, err := os.Executable()
	must(err)

	found := results{
		Date: time.Now().UTC().Format(time.DateTime), Commit: *commit, Processor: processor(), Cores: runtime.NumCPU(),
		Go: runtime.Version(), Ours: map[string]map[string][]float64{}, InTree: map[string]map[string][]float64{},
	}
	found.Load[0] = load()
	for _, cell := range cells(*only) {
		fmt.Fprintln(os.Stderr, "measuring", cell)
		// The alternation is by way, so that what disturbs the machine disturbs both sides.
		sides := [2]*side{
			newSide(exec.Command(*ours, "serve", *folder, cell), sample,
				waysOf(cell, func(f figure) string { return f.ours }, "read")),
			newSide(exec.Command(self, "serve", *folder, cell), inTreeSample(cell),
				waysOf(cell, func(f figure) string { return f.inTree })),
		}
		for repetition := range *repetitions {
			for turn := range 2 {
				sides[(repetition+turn)%2].measure()
			}
		}
		found.Ours[cell], found.InTree[cell] = sides[0].stop(), sides[1].stop()
	}
	if *only == "" {
		for range *repetitions {
			found.Compilation = append(found.Compilation, compile(*ours, "100"), compile(*ours, "1000"))
		}
		for range memoryRuns {
			found.Memory = append(found.Memory, compile(*ours, "1000", "MIMALLOC_PURGE_DELAY=0"))
		}
	}
	found.Load[1] = load()
	found.Table = table(&found)
	print(os.Stdout, found.Table)
	if *into != "" && *only == "" {
		text, err := json.MarshalIndent(found, "", " ")
		must(err)
		must(os.WriteFile(*into, append(compactLists(text), '\n'), 0o644))
	}
}

// compile compiles so many policies in a process of its own.
func compile(ours, policies string, environment ...string) map[string]float64 {
	fmt.Fprintln(os.Stderr, "compiling", policies, "policies")
	command := exec.Command(ours, "memory", policies)
	command.Env = append(os.Environ(), environment...)
	text, err := command.Output()
	must(err)
	var one map[string]float64
	must(json.Unmarshal(text, &one))
	return one
}

func cells(only string) []string {
	var cells []string
	for _, figure := range figures {
		if !slices.Contains(cells, figure.cell) && (only == "" || slices.Contains(strings.Split(only, ","), figure.cell)) {
			cells = append(cells, figure.cell)
		}
	}
	return cells
}

func waysOf(cell string, way func(figure) string, ways ...string) []string {
	for _, figure := range figures {
		if figure.cell == cell && !slices.Contains(ways, way(figure)) {
			ways = append(ways, way(figure))
		}
	}
	return ways
}

// side is a process that measures.
type side struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	ways    []string
	counts  map[string]int
	found   map[string][]float64
}

func newSide(command *exec.Cmd, sample time.Duration, ways []string) *side {
	input, err := command.StdinPipe()
	must(err)
	output, err := command.StdoutPipe()
	must(err)
	command.Stderr = os.Stderr
	must(command.Start())
	s := &side{command, input, bufio.NewScanner(output), ways, map[string]int{}, map[string][]float64{}}
	s.line()
	for _, way := range ways {
		// Once for the warm-up, and then for the count.
		count := 3
		for range 3 {
			each := s.run(way, count) / float64(count)
			count = max(3, int(float64(sample.Nanoseconds())/max(each, 1)))
		}
		s.counts[way] = count
	}
	return s
}

func (s *side) line() string {
	if !s.output.Scan() {
		panic(fmt.Sprint(s.command.Args, " ended"))
	}
	return s.output.Text()
}

// run returns the CPU time of so many reviews in nanoseconds.
func (s *side) run(way string, count int) float64 {
	_, err := fmt.Fprintln(s.input, way, count)
	must(err)
	nanoseconds, err := strconv.ParseFloat(s.line(), 64)
	must(err)
	return nanoseconds
}

func (s *side) measure() {
	for _, way := range s.ways {
		count := s.counts[way]
		micros := s.run(way, count) / float64(count) / 1000
		s.found[way] = append(s.found[way], math.Round(micros*1e4)/1e4)
	}
}

func (s *side) stop() map[string][]float64 {
	must(s.input.Close())
	must(s.command.Wait())
	return s.found
}

func table(found *results) []row {
	var rows []row
	for _, figure := range figures {
		ours, inTree := found.Ours[figure.cell][figure.ours], found.InTree[figure.cell][figure.inTree]
		if len(ours) == 0 {
			continue
		}
		ratios := make([]float64, len(ours))
		for at := range ours {
			ratios[at] = inTree[at] / ours[at]
		}
		one := row{Figure: figure.label, InTree: median(inTree), Ours: median(ours), Ratio: median(ratios)}
		one.Low, one.High = interval(ratios)
		if figure.atLeast > 0 {
			one.Target, one.Met = fmt.Sprintf(">= %g", figure.atLeast), met(one.Ratio >= figure.atLeast)
		}
		rows = append(rows, one)
	}
	var few, many, memory []float64
	for _, one := range found.Compilation {
		milliseconds := one["compile_cpu_ns"] / 1e6
		if one["policies"] == 100 {
			few = append(few, milliseconds)
		} else {
			many = append(many, milliseconds)
		}
	}
	for _, one := range found.Memory {
		memory = append(memory, (one["rss_after"]-one["rss_start"])/(1<<20))
	}
	if len(few) == 0 {
		return rows
	}
	ratios := make([]float64, len(few))
	for at := range few {
		ratios[at] = many[at] / few[at]
	}
	linear := row{
		Figure: "compile 1,000 ÷ 100 policies, ms", InTree: median(few), Ours: median(many), Ratio: median(ratios),
		Target: "<= 11", Met: met(median(ratios) <= 11),
	}
	linear.Low, linear.High = interval(ratios)
	size := row{
		Figure: "1,000 policies, 300,000 bindings, MiB", Ours: median(memory), Target: "<= 100",
		Met: met(median(memory) <= 100),
	}
	return append(rows, linear, size)
}

func met(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func print(to io.Writer, rows []row) {
	head := []any{"CPU a review, us", "in-tree", "ours", "ratio", "95 %", "target", "met"}
	fmt.Fprintf(to, "%-42s %9s %8s %7s %15s %10s %s\n", head...)
	number := func(value float64) string {
		if value == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", value)
	}
	for _, one := range rows {
		between := "-"
		if one.High > 0 {
			between = fmt.Sprintf("%.2f..%.2f", one.Low, one.High)
		}
		fmt.Fprintf(to, "%-42s %9s %8s %7s %15s %10s %s\n", one.Figure, number(one.InTree), number(one.Ours),
			number(one.Ratio), between, one.Target, one.Met)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// interval returns two of the values between which the median is with a probability of at least 95 %, whatever the
// distribution: as many values are left out on each side as the binomial distribution allows.
func interval(values []float64) (low, high float64) {
	sorted, count := slices.Sorted(slices.Values(values)), len(values)
	outside, chance, below := 0, math.Pow(0.5, float64(count)), 0.0
	for {
		below += chance
		if 2*below > 0.05 || outside >= count/2 {
			break
		}
		outside++
		chance *= float64(count-outside+1) / float64(outside)
	}
	at := max(outside-1, 0)
	return sorted[at], sorted[count-1-at]
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	must(err)
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(line, "model name"); is {
			return strings.Trim(name, " \t:\n")
		}
	}
	return runtime.GOARCH
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	must(err)
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// compactLists puts each list of numbers on a line of its own.
func compactLists(text []byte) []byte {
	var out strings.Builder
	isList := false
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(trimmed, "["):
			isList = true
			out.WriteString(strings.TrimRight(line, "\n"))
		case isList && strings.HasPrefix(trimmed, "]"):
			isList = false
			out.WriteString(trimmed + "\n")
		case isList && strings.HasPrefix(trimmed, "{"):
			isList = false
			out.WriteString("\n" + line)
		case isList:
			out.WriteString(trimmed)
		default:
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}
