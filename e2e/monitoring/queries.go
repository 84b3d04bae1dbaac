// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const prefix = "atoll_"

// Query is a PromQL expression and its place.
type Query struct{ Where, Expr string }

// Rules is a Prometheus rule file.
type Rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []Rule `json:"rules"`
	} `json:"groups"`
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ReadRules reads a rule file, and refuses unknown fields.
func ReadRules(data []byte) (*Rules, error) {
	rules := &Rules{}
	if err := yaml.UnmarshalStrict(data, rules); err != nil {
		return nil, fmt.Errorf("reading rules: %w", err)
	}
	return rules, nil
}

// Check returns what an on-call person would miss.
func (r Rule) Check() error {
	var errs []error
	lasts, err := model.ParseDuration(r.For)
	if err != nil {
		errs = append(errs, fmt.Errorf("for: %w", err))
	}
	errs = append(errs, checkFirstEvents(r.Expr, lasts))
	if s := r.Labels["severity"]; s != "critical" && s != "warning" {
		errs = append(errs, fmt.Errorf("severity %q", s))
	}
	for _, text := range []string{"summary", "description"} {
		if len(r.Annotations[text]) < 20 {
			errs = append(errs, fmt.Errorf("the %s says too little: %q", text, r.Annotations[text]))
		}
	}
	return errors.Join(errs...)
}

// checkFirstEvents returns an error if an alert on single events misses the first one; because a counter has no series before it, and the
// increase of a new series is 0. An alert that fires after the whole window is about events that go on.
func checkFirstEvents(text string, lasts model.Duration) error {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return fmt.Errorf("expr: %w", err)
	}
	has, wants := map[string]bool{}, []string{}
	parser.Inspect(expr, func(node parser.Node, parents []parser.Node) error {
		switch n := node.(type) {
		case *parser.BinaryExpr:
			has[n.String()] = true
		case *parser.Call:
			if n.Func.Name != "increase" || !slices.ContainsFunc(parents, aboveZero) {
				break
			}
			if window, ok := n.Args[0].(*parser.MatrixSelector); ok && time.Duration(lasts) < window.Range {
				selector := window.VectorSelector.String()
				wants = append(wants, fmt.Sprintf("%s unless %s offset %s", selector, selector, model.Duration(window.Range)))
			}
		}
		return nil
	})
	var errs []error
	for _, want := range wants {
		added, err := parser.ParseExpr(want)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", want, err))
		} else if !has[added.String()] {
			errs = append(errs, fmt.Errorf("the first event does not fire it, want `or (%s)`", want))
		}
	}
	return errors.Join(errs...)
}

// aboveZero reports whether a node is a comparison with "> 0".
func aboveZero(node parser.Node) bool {
	comparison, ok := node.(*parser.BinaryExpr)
	if !ok || comparison.Op != parser.GTR {
		return false
	}
	threshold, ok := comparison.RHS.(*parser.NumberLiteral)
	return ok && threshold.Val == 0
}

// ReadDashboard collects the queries of a Grafana dashboard.
func ReadDashboard(data []byte) ([]Query, error) {
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	var queries []Query
	for _, p := range dashboard.Panels {
		for _, t := range p.Targets {
			queries = append(queries, Query{"panel " + p.Title, strings.ReplaceAll(t.Expr, "$__rate_interval", "5m")})
		}
	}
	return queries, nil
}

// Queries returns the queries of every dashboard and rule file below charts.
func Queries(charts string) ([]Query, error) {
	var queries []Query
	tree := os.DirFS(charts)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Base(path.Dir(name)) != "monitoring" {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".json" {
			found, err := ReadDashboard(data)
			queries = append(queries, found...)
			return err
		}
		rules, err := ReadRules(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				queries = append(queries, Query{"alert " + r.Alert, r.Expr})
			}
		}
		return nil
	})
	return queries, err
}

// target are the labels that Prometheus adds to scraped metrics.
var target = []string{"job", "instance", "namespace", "pod", "le"}

// ofHosted is a label that all metrics of a worker have if it runs for a cluster elsewhere, and the hub's have not.
const ofHosted = "cluster"

var ours = regexp.MustCompile(`^atoll_(hub|worker|link)_`)

// Check compares queries with a program's metrics, whose names begin with one of the prefixes. It parses all queries; of
// metrics with another prefix it only checks that a program has it.
func Check(queries []Query, metrics []Metric, prefixes ...string) error {
	known := map[string]Metric{}
	for _, m := range metrics {
		known[m.Name] = m
	}
	var errs []error
	for _, q := range queries {
		expr, err := parser.ParseExpr(q.Expr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", q.Where, q.Expr, err))
			continue
		}
		parser.Inspect(expr, func(node parser.Node, parents []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				if err := checkSelector(s, parents, known, prefixes); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", q.Where, err))
				}
			}
			return nil
		})
	}
	return errors.Join(errs...)
}

func checkSelector(s *parser.VectorSelector, parents []parser.Node, known map[string]Metric, prefixes []string) error {
	if !ours.MatchString(s.Name) {
		return fmt.Errorf("%q is of neither hub nor worker nor link", s.Name)
	}
	if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
		return nil // the other program's
	}
	m, ok := known[s.Name]
	if ok && m.Type == dto.MetricType_HISTOGRAM {
		return fmt.Errorf("%s is a histogram: ask for _bucket, _sum or _count", s.Name)
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, is := strings.CutSuffix(s.Name, suffix); is && !ok {
			m, ok = known[base]
			ok = ok && m.Type == dto.MetricType_HISTOGRAM
		}
	}
	if !ok {
		return fmt.Errorf("there is no metric %s", s.Name)
	}
	asked := map[string]bool{}
	for _, matcher := range s.LabelMatchers {
		if matcher.Name != model.MetricNameLabel {
			asked[matcher.Name] = true
		}
	}
	for _, parent := range parents {
		if a, is := parent.(*parser.AggregateExpr); is && !a.Without {
			for _, by := range a.Grouping {
				asked[by] = true
			}
		}
	}
	for label := range asked {
		if label == ofHosted && !strings.HasPrefix(s.Name, "atoll_hub_") {
			continue
		}
		if !slices.Contains(m.Labels, label) && !slices.Contains(target, label) {
			return fmt.Errorf("%s has no label %s, it has %v", m.Name, label, m.Labels)
		}
	}
	return nil
}
