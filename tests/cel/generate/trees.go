package main

import (
	goast "go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
	celtest "cel.dev/expr/conformance/test"
	"github.com/google/cel-go/common/debug"
	"google.golang.org/protobuf/encoding/prototext"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// parsed is an expression, and its tree or why there is none.
type parsed struct {
	From       string `json:"from"`
	Expression string `json:"expression"`
	Tree       string `json:"tree,omitempty"`
	Refused    string `json:"refused,omitempty"`
}

// trees parses every expression of cel-go's table, of cel-spec's conformance tests, and of ours, as an apiserver does.
func trees(celgo, celspec, ours string) []parsed {
	minor := version.MustParseGeneric(apiserver()).Minor()
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, minor)).Env(environment.NewExpressions)
	must(err)
	all, known := []parsed{}, map[string]bool{}
	add := func(from, expression string) {
		if known[expression] {
			return
		}
		known[expression] = true
		one := parsed{From: from, Expression: expression}
		if tree, issues := env.Parse(expression); issues.Err() != nil {
			text, _, _ := strings.Cut(strings.TrimPrefix(issues.String(), "ERROR: <input>:"), "\n | ")
			one.Refused = text
		} else {
			one.Tree = lines.ReplaceAllString(debug.ToDebugString(tree.NativeRep().Expr()), "")
		}
		all = append(all, one)
	}
	for _, expression := range table(filepath.Join(celgo, "parser", "parser_test.go")) {
		add("parser_test.go", expression)
	}
	files, err := filepath.Glob(filepath.Join(celspec, "tests", "simple", "testdata", "*.textproto"))
	must(err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(err)
		var file celtest.SimpleTestFile
		must(prototext.Unmarshal(text, &file))
		for _, section := range file.Section {
			for _, test := range section.Test {
				add(filepath.Base(path), test.Expr)
			}
		}
	}
	var own []string
	read(ours, &own)
	for _, expression := range own {
		add(filepath.Base(ours), expression)
	}
	return all
}

// lines are the ends of a tree's lines; literals have none.
var lines = regexp.MustCompile(`\n *`)

// table returns the inputs (`I`) of the cases in a Go file.
func table(path string) []string {
	file, err := goparser.ParseFile(token.NewFileSet(), path, nil, 0)
	must(err)
	inputs := []string{}
	goast.Inspect(file, func(node goast.Node) bool {
		if pair, ok := node.(*goast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*goast.Ident); ok && key.Name == "I" {
				if literal, ok := pair.Value.(*goast.BasicLit); ok {
					input, err := strconv.Unquote(literal.Value)
					must(err)
					inputs = append(inputs, input)
				}
			}
		}
		return true
	})
	return inputs
}
