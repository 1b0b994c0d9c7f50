package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Behaviours of a hook, and in which operations and encodings each is tried; under both policies.
//
//go:embed combinations.tsv
var combinationsTable string

// ways is what `*` stands for in the table: every operation, in every encoding that its request can have.
var ways = []string{
	"CREATE/JSON", "CREATE/YAML", "CREATE/protobuf", "UPDATE/JSON", "UPDATE/YAML", "UPDATE/protobuf",
	"PATCH/JSON", "APPLY/JSON", "DELETE/JSON", "DELETE/YAML", "DELETE/protobuf",
}

// combination is a row of the table.
type combination struct {
	behaviour, script string
	ways              []string
}

func readCombinations(table string) ([]combination, error) {
	var all []combination
	for n, line := range strings.Split(table, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("combinations.tsv:%d: %d columns, not 3", n+1, len(columns))
		}
		one := combination{columns[0], columns[2], ways}
		if columns[1] != "*" {
			one.ways = strings.Fields(columns[1])
		}
		for _, way := range one.ways {
			if !slices.Contains(ways, way) {
				return nil, fmt.Errorf("combinations.tsv:%d: there is no %s", n+1, way)
			}
		}
		if !json.Valid([]byte(one.script)) {
			return nil, fmt.Errorf("combinations.tsv:%d: the script is no JSON", n+1)
		}
		all = append(all, one)
	}
	return all, nil
}

// combinations is every behaviour under both policies, in each of its ways.
func combinations() []namedCall {
	table, err := readCombinations(combinationsTable)
	if err != nil {
		// A test has read it.
		panic(err)
	}
	changed := create(configMaps, configMap("changed"))
	all := []namedCall{{"config map that is to be changed made", changed}}
	for number, one := range table {
		for _, hook := range []string{"strict", "lenient"} {
			for _, way := range one.ways {
				operation, encoding, _ := strings.Cut(way, "/")
				name := fmt.Sprintf("%s hook %s: %s in %s", hook, one.behaviour, operation, encoding)
				all = append(all, namedCall{name, one.call(hook, operation, encoding, number)})
			}
		}
	}
	return all
}

// call is a dry run, whatever it does: the next one finds everything as it was.
func (c combination) call(hook, operation, encoding string, number int) call {
	scripted := func(name, script string) object { return configMap(name).label("break", hook).script(hook, script) }
	switch operation {
	case "CREATE":
		return encoded(call{method: "POST", path: configMaps + dryRun}, scripted("combined", c.script), encoding)
	case "UPDATE":
		return encoded(call{method: "PUT", path: configMaps + "/changed" + dryRun}, scripted("changed", c.script), encoding)
	case "PATCH":
		patch := encoded(call{method: "PATCH", path: configMaps + "/changed" + dryRun}, scripted("changed", c.script), encoding)
		patch.contentType = "application/merge-patch+json"
		return patch
	case "APPLY":
		// In JSON, which is YAML: of any other YAML an apiserver that logs patches writes no audit event.
		patch := encoded(call{method: "PATCH", path: configMaps + "/changed" + dryRun + "&fieldManager=replay&force=true"}, scripted("changed", c.script), encoding)
		patch.contentType = "application/apply-patch+yaml"
		return patch
	default:
		// A deletion carries no script: what is deleted has it, for its deletion alone.
		name := fmt.Sprintf("deleted-%s-%d", hook, number)
		script := strings.Replace(c.script, "{", `{"on": "DELETE", `, 1)
		if c.script == "{}" {
			script = `{"on": "DELETE"}`
		}
		stored := create(configMaps, scripted(name, script))
		options := object{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
		remove := encoded(call{method: "DELETE", path: configMaps + "/" + name + dryRun}, options, encoding)
		remove.before = &stored
		return remove
	}
}
