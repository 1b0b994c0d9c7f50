package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func expectations(t *testing.T, rows string) []*expectation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "expected.tsv")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readExpectations(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestOnlyWhatIsExpectedHasAReason(t *testing.T) {
	rows := "# a comment\n" +
		"*\tdenied*\tmessage\t(hook .*)\touter: $1\tprefixed\tread on\n" +
		"api\t*\taudit\tgone=.*\t-\tdropped\tnothing\n" +
		"*\t*\taudit\t-\tnew=.*\tadded\tnothing\n"
	for _, one := range []struct {
		name, mode, field string
		direct, through   []string
		// The reason of each difference, empty where nobody expected it.
		want []string
	}{
		{"allowed", "api", "code", []string{"201"}, []string{"201"}, nil},
		{"allowed", "api", "code", []string{"201"}, []string{"500"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"outer: hook says no"}, []string{"prefixed"}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"hook says no"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, []string{"outer: hook says yes"}, []string{""}},
		{"denied", "api", "message", []string{"hook says no"}, nil, []string{""}},
		{"allowed", "api", "message", []string{"hook says no"}, []string{"outer: hook says no"}, []string{""}},
		{"allowed", "api", "audit", []string{"gone=1", "kept=1"}, []string{"kept=1"}, []string{"dropped"}},
		{"allowed", "static", "audit", []string{"gone=1"}, nil, []string{""}},
		{"allowed", "static", "audit", nil, []string{"new=1", "newer=1"}, []string{"added", ""}},
		{"allowed", "api", "warnings", []string{"twice", "twice"}, []string{"twice"}, []string{""}},
	} {
		var got []string
		for _, found := range compareField(expectations(t, rows), one.mode, one.name, one.field, one.direct, one.through) {
			why := ""
			if found.expected != nil {
				why = found.expected.why
			}
			got = append(got, why)
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("%s %s %v %v: %q, not %q", one.mode, one.field, one.direct, one.through, got, one.want)
		}
	}
}

func TestWhatIsExpectedAndNotSeenIsTold(t *testing.T) {
	all := expectations(t, "*\t*\tmessage\thook (.*)\touter $1\tprefixed\tread on\n")
	compareField(all, "api", "denied", "message", []string{"hook no"}, []string{"hook no"})
	if all[0].used {
		t.Error("a row that did not come true counts as used")
	}
	compareField(all, "api", "denied", "message", []string{"hook no"}, []string{"outer no"})
	if !all[0].used {
		t.Error("a row that came true does not count as used")
	}
}

func TestARowSaysWhatToDo(t *testing.T) {
	for _, row := range []string{
		"*\t*\tmessage\thook (.*)\touter $1\tprefixed\n",
		"*\t*\tmessage\thook (.*)\touter $1\tprefixed\t\n",
		"*\t*\tmesage\thook (.*)\touter $1\tprefixed\tread on\n",
	} {
		file := filepath.Join(t.TempDir(), "expected.tsv")
		if err := os.WriteFile(file, []byte(row), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readExpectations(file); err == nil {
			t.Errorf("%q: taken", row)
		}
	}
	for _, file := range []string{"../expected.tsv", "../expected-plugin.tsv", "../policies/expected.tsv"} {
		if _, err := readExpectations(file); err != nil {
			t.Error(err)
		}
	}
}

func TestTheTableIsSortedByHowMuchADifferenceMatters(t *testing.T) {
	why := &expectation{why: "prefixed", do: "read on"}
	var found []difference
	for _, field := range []string{"asked", "audit", "object", "details", "retry-after", "warnings", "odd", "message", "code", "status", "reason"} {
		found = append(found, difference{mode: "api", name: "denied", field: field})
	}
	found = append(found, difference{"api", "again", "code", "201", "500", why})
	var table strings.Builder
	writeReport(&table, 1, []string{"api"}, found)
	var fields []string
	for _, line := range strings.Split(table.String(), "\n") {
		if columns := strings.Split(line, " | "); len(columns) == 6 {
			fields = append(fields, strings.TrimPrefix(columns[0], "| "))
		}
	}
	want := append([]string{"field", "---", "code", "code"}, append(slices.Clone(ranks[1:]), "odd")...)
	if !slices.Equal(fields, want) {
		t.Errorf("%q, not %q", fields, want)
	}
	if !strings.Contains(table.String(), "| `201` | `500` | api: again | prefixed | read on |\n") {
		t.Error(table.String())
	}
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, one := range cases() {
		if seen[one.name] {
			t.Errorf("%s: twice", one.name)
		}
		seen[one.name] = true
	}
}
