package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// expectation is a row of the table of expected differences.
//
// For a case and a field that match, a direct line that `direct` matches as a whole is expected to read as `through`
// ($1 stands for the first group). `-` as `through`: the line is expected to be missing. `-` as `direct`: lines that
// match `through` as a whole may be there in addition.
type expectation struct {
	mode, name, field string
	direct, through   *regexp.Regexp
	becomes, why, do  string
	used              bool
}

func readExpectations(file string) ([]*expectation, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*expectation
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 7 || slices.Contains(columns, "") {
			return nil, fmt.Errorf("%s:%d: %d columns, not 7, or an empty one", file, n+1, len(columns))
		}
		one := &expectation{
			mode: columns[0], name: columns[1], field: columns[2], becomes: columns[4], why: columns[5], do: columns[6],
		}
		if rank(one.field) == len(ranks) {
			return nil, fmt.Errorf("%s:%d: no field %q", file, n+1, one.field)
		}
		if columns[3] == "-" {
			one.through, err = regexp.Compile("^(?s:" + columns[4] + ")$")
		} else {
			one.direct, err = regexp.Compile("^(?s:" + columns[3] + ")$")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func (e *expectation) concerns(mode, name, field string) bool {
	inMode, _ := path.Match(e.mode, mode)
	inName, _ := path.Match(e.name, name)
	return inMode && inName && e.field == field
}

// difference is one line that is not the same.
type difference struct {
	mode, name, field, direct, through string
	// expected is the row that says so; nil when none does.
	expected *expectation
}

// compareField pairs the lines of one field, as expected where something is expected.
func compareField(expected []*expectation, mode, name, field string, direct, through []string) []difference {
	var found []difference
	left := slices.Clone(through)
	take := func(line string) bool {
		i := slices.Index(left, line)
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	}
	var missing []string
	for _, line := range direct {
		row := slices.IndexFunc(expected, func(e *expectation) bool {
			return e.direct != nil && e.concerns(mode, name, field) && e.direct.MatchString(line)
		})
		if row < 0 {
			if !take(line) {
				missing = append(missing, line)
			}
			continue
		}
		rule := expected[row]
		if rule.becomes == "-" {
			rule.used = true
			found = append(found, difference{mode, name, field, line, "", rule})
			continue
		}
		want := rule.direct.ReplaceAllString(line, rule.becomes)
		if !take(want) {
			missing = append(missing, line)
			continue
		}
		rule.used = true
		if want != line {
			found = append(found, difference{mode, name, field, line, want, rule})
		}
	}
	left = slices.DeleteFunc(left, func(line string) bool {
		row := slices.IndexFunc(expected, func(e *expectation) bool {
			return e.through != nil && e.concerns(mode, name, field) && e.through.MatchString(line)
		})
		if row >= 0 {
			expected[row].used = true
			found = append(found, difference{mode, name, field, "", line, expected[row]})
		}
		return row >= 0
	})
	// Lines that are left on both sides: side by side, as far as they go together.
	for i := 0; i < max(len(missing), len(left)); i++ {
		one := difference{mode: mode, name: name, field: field}
		if i < len(missing) {
			one.direct = missing[i]
		}
		if i < len(left) {
			one.through = left[i]
		}
		found = append(found, one)
	}
	return found
}

func readOutcomes(file string) ([]outcome, error) {
	open, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	var all []outcome
	lines := bufio.NewScanner(open)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var one outcome
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

// compareFiles writes the table and fails when something in it has no reason.
func compareFiles(expectedFile, out string, files []string) error {
	if len(files) < 2 {
		return fmt.Errorf("compare what with what?")
	}
	expected, err := readExpectations(expectedFile)
	if err != nil {
		return err
	}
	direct, err := readOutcomes(files[0])
	if err != nil {
		return err
	}
	var found []difference
	var modes []string
	for _, file := range files[1:] {
		mode, name, named := strings.Cut(file, "=")
		if !named {
			return fmt.Errorf("%s: NAME=FILE is wanted", file)
		}
		modes = append(modes, mode)
		through, err := readOutcomes(name)
		if err != nil {
			return err
		}
		if len(through) != len(direct) {
			return fmt.Errorf("%d cases in %s, %d in %s", len(direct), files[0], len(through), name)
		}
		for i := range direct {
			if direct[i].Case != through[i].Case {
				return fmt.Errorf("case %d is %q in one file and %q in the other", i, direct[i].Case, through[i].Case)
			}
			fields := map[string]bool{}
			for field := range direct[i].Fields {
				fields[field] = true
			}
			for field := range through[i].Fields {
				fields[field] = true
			}
			for _, field := range slices.Sorted(maps.Keys(fields)) {
				found = append(found, compareField(expected, mode, direct[i].Case, field, direct[i].Fields[field], through[i].Fields[field])...)
			}
		}
	}
	var unexpected, stale int
	for _, one := range found {
		if one.expected == nil {
			unexpected++
		}
	}
	writer := io.Writer(os.Stdout)
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer file.Close()
		writer = file
	}
	writeReport(writer, len(direct), modes, found)
	for _, one := range expected {
		if !one.used {
			fmt.Fprintf(os.Stderr, "expected, and never seen: %s | %s | %s\n", one.mode, one.name, one.field)
			stale++
		}
	}
	for _, one := range found {
		if one.expected == nil {
			fmt.Fprintf(os.Stderr, "%s: %s: %s\n    direct  %s\n    through %s\n", one.mode, one.name, one.field, shorten(one.direct), shorten(one.through))
		}
	}
	for _, mode := range modes {
		alike := len(direct)
		for _, one := range direct {
			if slices.ContainsFunc(found, func(d difference) bool {
				return d.mode == mode && d.name == one.Case && (d.expected == nil || d.expected.name != "*")
			}) {
				alike--
			}
		}
		fmt.Fprintf(os.Stderr, "%s: %d of %d cases differ in nothing but what differs in all\n", mode, alike, len(direct))
	}
	if unexpected+stale > 0 {
		return fmt.Errorf("%d differences that nobody expected, %d expectations that nothing met", unexpected, stale)
	}
	return nil
}
