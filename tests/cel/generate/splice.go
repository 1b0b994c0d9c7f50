package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// generated is one file of new cases: expressions on the same objects, and their answers.
type generated struct {
	Object    map[string]any `json:"object"`
	OldObject map[string]any `json:"oldObject"`
	Answers   []answer       `json:"answers"`
}

const (
	// perFile is how many expressions share two objects.
	perFile = 50
	// maxExpression bounds the length of a generated expression.
	maxExpression = 400
	// repeats is how often an expression is evaluated, as Go's maps have another order each time. One that costs more
	// than cheap is evaluated fewer times.
	repeats, cheap = 64, 400_000
)

// rare are expressions that take the place of others besides those of the cases. In those with a "hole" it is
// the expression that was there.
var rare = []string{
	"dyn(hole)", "dyn(hole)", "dyn(hole)", "[hole]", "[hole, hole]", "[hole][0]", "{'k': hole}", "{'k': hole}.k",
	"optional.of(hole)", "optional.of(hole).value()", "optional.ofNonZeroValue(hole)", "[?optional.of(hole)]",
	"optional.of(hole).optMap(v, hole)", "[1].map(v, hole)[0]", "[hole].map(v, v)", "[hole].filter(v, v == hole)", "true ? hole : hole",
	"{'a': hole}.all(k, v, v == hole)", "[hole].transformMap(i, v, v)", "type(hole)", "string(hole)", "'%s'.format([hole])",
	"size(hole)", "-hole", "!hole", "hole.a", "hole.?a", "hole[0]", "hole[?0]", "hole + hole", "has(hole.a)", "hole == hole",
	"hole.orValue(hole)", "hole in [hole, 1]", "hole ? 1 : 2", "hole < hole", "hole || hole", "hole && hole", "int(hole)",
	"''", "' '", "'0'", "'\\u00e9'", "'e\\u0301'", "'\\U0001f600'", "'\\x00'", "'%'", "'%s'", "b''", "b'\\xff'", "b'\\xc3\\xa9'", "null",
	"0", "-1", "9223372036854775807", "-9223372036854775808", "0u", "18446744073709551615u", "0.0", "-0.0", "1e308", "5e-324",
	"1e19", "0.1", "9007199254740993.0", "double('NaN')", "double('inf')", "-double('inf')", "[]", "{}", "[[]]", "{'': {}}",
	"optional.none()", "optional.of(optional.none())", "[optional.none()]", "{'a': optional.of(1)}", "dyn(null)",
	"timestamp('0001-01-01T00:00:00Z')", "timestamp('9999-12-31T23:59:59.999999999Z')", "duration('0s')", "duration('-1ns')",
	"duration('2562047h47m16.854775807s')", "quantity('-0')", "quantity('1e-9')", "quantity('9223372036854775808')",
	"ip('::')", "cidr('0.0.0.0/0')", "semver('0.0.0-a')", "url('https://u@[::1]:1/p?q=1#f')", "object", "oldObject", "request",
	"namespaceObject", "authorizer", "object.spec", "object.spec.list", "object.spec.numbers", "object.metadata.labels",
	"oldObject.spec", "request.userInfo", "request.options", "int", "type(null)", "[1, 2.0, 3u]", "{1: 1, 2u: 2, true: 3}",
}

// rareValues are members of objects.
const rareValues = `[null, true, false, "", "0", "1", "a", "é", "😀", "2024-01-02T03:04:05Z", "1h", "256Mi", "10.0.0.0/8", 0, -0, -1,
	1, 9223372036854775807, -9223372036854775808, 9223372036854775808, 1.5, -0.0, 1e308, 0.1, 1e3, [], {}, [[]], [null], [1, "a"],
	[1, 1.0], {"": null}, {"a": {"a": [{"a": 1}]}}, ["b", "a"], {"name": "main", "x": 1}]`

// splicer makes new expressions and objects of others.
type splicer struct {
	*rand.Rand
	// hosts are whole expressions; parts are those and all in them.
	hosts, parts, rare []ast.Expr
	values             []any
}

// splice writes so many new cases, and their answers, as files below a folder of this version's name.
func splice(seed int64, count int, cases, expressions, folder string) {
	s := &splicer{Rand: rand.New(rand.NewSource(seed))}
	var in input
	read(cases, &in)
	var more []string
	read(expressions, &more)
	decode([]byte(rareValues), &s.values)
	for _, text := range slices.Concat(in.Expressions, more) {
		if host := parse(text); host != nil && len(text) <= maxExpression {
			s.hosts = append(s.hosts, host)
			s.parts = append(s.parts, nodes(host)...)
		}
	}
	for _, text := range rare {
		s.rare = append(s.rare, parse(text))
	}
	folder = filepath.Join(folder, apiserver())
	must(os.MkdirAll(folder, 0o755))
	for file := 0; count > 0; file++ {
		out := generated{Object: s.object(in.Object), OldObject: s.object(in.OldObject), Answers: []answer{}}
		request := newRequest(input{Object: copied(out.Object).(map[string]any), OldObject: copied(out.OldObject).(map[string]any), Extra: in.Extra})
		for len(out.Answers) < min(count, perFile) {
			if one := s.steady(request, s.expression()); one != nil {
				out.Answers = append(out.Answers, *one)
			}
		}
		count -= len(out.Answers)
		text, err := json.MarshalIndent(out, "", " ")
		must(err)
		must(os.WriteFile(filepath.Join(folder, fmt.Sprintf("%05d.json", file)), text, 0o644))
	}
}

// steady returns the answer, unless it depends on the order of a map. One that is refused counts one time in four.
func (s *splicer) steady(request *request, expression string) *answer {
	// Such as "hash of unhashable type", for a map by which nothing can be looked up.
	defer func() { _ = recover() }()
	// What exceeds nothing that upstream counts, and still does not end, is to be found and left out above.
	tooLong := time.AfterFunc(20*time.Second, func() { fmt.Fprintln(os.Stderr, "does not end:", expression); os.Exit(1) })
	defer tooLong.Stop()
	first, evaluate := request.compile(expression)
	if evaluate == nil {
		if s.Intn(4) > 0 {
			return nil
		}
		return &first
	}
	first = evaluate()
	times := repeats
	if *first.Cost > cheap {
		times = 4
	}
	for range times {
		if again := evaluate(); !same(first, again) {
			return nil
		}
	}
	return &first
}

// parse returns the tree of an expression in which macros are calls, or nil.
func parse(text string) ast.Expr {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	must(err)
	tree, errors := p.Parse(common.NewTextSource(text))
	if len(errors.GetErrors()) > 0 {
		return nil
	}
	return tree.Expr()
}

// nodes returns an expression and all in it, but for the names behind `.?`, which nothing else may replace.
func nodes(expr ast.Expr) []ast.Expr {
	all, names := []ast.Expr{}, map[ast.Expr]bool{}
	ast.PreOrderVisit(expr, ast.NewExprVisitor(func(one ast.Expr) {
		if one.Kind() == ast.CallKind && one.AsCall().FunctionName() == operators.OptSelect {
			names[one.AsCall().Args()[1]] = true
		}
		if !names[one] {
			all = append(all, one)
		}
	}))
	return all
}

var factory = ast.NewExprFactory()

func (s *splicer) one(of []ast.Expr) ast.Expr { return factory.CopyExpr(of[s.Intn(len(of))]) }

// expression returns one of which one to three parts are replaced, and sometimes a piece of its text is dropped or doubled.
func (s *splicer) expression() string {
	for {
		expr := s.one(s.hosts)
		for more := true; more; more = s.Intn(2) == 0 {
			all := nodes(expr)
			at := all[s.Intn(len(all))]
			// What an expression ends with mostly stays, as it must be a condition.
			if at == expr && s.Intn(4) > 0 {
				continue
			}
			was, other := factory.CopyExpr(at), s.one(s.parts)
			if s.Intn(2) == 0 {
				other = s.one(s.rare)
			}
			for _, part := range nodes(other) {
				if part.Kind() == ast.IdentKind && part.AsIdent() == "hole" {
					part.SetKindCase(was)
					if s.Intn(4) == 0 {
						was = s.one(s.parts)
					}
				}
			}
			at.SetKindCase(other)
		}
		for _, part := range nodes(expr) {
			if part.Kind() == ast.LiteralKind && s.Intn(8) == 0 {
				if text, ok := part.AsLiteral().(types.String); ok {
					part.SetKindCase(factory.NewLiteral(0, types.String(s.edited(string(text)))))
				}
			}
		}
		text, err := parser.Unparse(expr, ast.NewSourceInfo(nil))
		// Some trees have no text, such as those of fields that are no names.
		if err != nil || len(text) > maxExpression {
			continue
		}
		if s.Intn(20) == 0 {
			text = s.edited(text)
		}
		if text != "" && !endless.MatchString(text) {
			return text
		}
	}
}

// endless are numbers with which upstream computes for minutes.
var endless = regexp.MustCompile(`[eE][-+]?[0-9]{4}`)

// characters are put into texts.
const characters = "0019aAeEzZmkKinIP.,:;/\\%#?&=@[](){}+-_*^$|~ '\"Té😀"

// edited returns a text of which a piece is dropped, doubled or replaced.
func (s *splicer) edited(text string) string {
	runes := []rune(text)
	from := s.Intn(len(runes) + 1)
	to := min(from+1+s.Intn(3), len(runes))
	piece := slices.Clone(runes[from:to])
	switch s.Intn(4) {
	case 0:
		return string(slices.Delete(runes, from, to))
	case 1:
		return string(slices.Insert(runes, s.Intn(len(runes)+1), piece...))
	case 2:
		to = from
	}
	all := []rune(characters)
	return string(slices.Replace(runes, from, to, all[s.Intn(len(all))]))
}

// object returns one of which up to three members are dropped or replaced, or none.
func (s *splicer) object(of map[string]any) map[string]any {
	if s.Intn(20) == 0 {
		return nil
	}
	out := copied(of).(map[string]any)
	for range s.Intn(4) {
		s.change(out)
	}
	// Of another kind, it would be converted.
	out["apiVersion"], out["kind"] = of["apiVersion"], of["kind"]
	return out
}

func (s *splicer) change(in map[string]any) {
	keys := slices.Sorted(maps.Keys(in))
	if len(keys) == 0 {
		in["a"] = copied(s.values[s.Intn(len(s.values))])
		return
	}
	key := keys[s.Intn(len(keys))]
	if below, ok := in[key].(map[string]any); ok && s.Intn(8) > 0 {
		s.change(below)
		return
	}
	switch s.Intn(8) {
	case 0:
		delete(in, key)
	case 1:
		in[key] = []any{in[key]}
	case 2:
		in[key] = copied(in[keys[s.Intn(len(keys))]])
	default:
		in[key] = copied(s.values[s.Intn(len(s.values))])
	}
}

// copied returns a copy of a value as it was read.
func copied(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := map[string]any{}
		for key, one := range v {
			out[key] = copied(one)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for at, one := range v {
			out[at] = copied(one)
		}
		return out
	}
	return value
}
