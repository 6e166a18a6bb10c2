package leaktest_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxprom"
)

type dashboard struct {
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

// described is what the collector may send: names, and the labels of each.
func described(t *testing.T) map[string][]string {
	t.Helper()
	box, err := outbox.New(nil, outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	to := make(chan *prometheus.Desc, 100)
	outboxprom.New(outboxprom.Config{Box: box}).Describe(to)
	close(to)
	known := map[string][]string{}
	form := regexp.MustCompile(`fqName: "([a-z_]+)", .*variableLabels: \{([a-z,]*)\}`)
	for d := range to {
		m := form.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		known[m[1]] = strings.Split(m[2], ",")
	}
	require.Greater(t, len(known), 15)
	return known
}

// Each query of the dashboard is PromQL, and asks for metrics and labels that
// there are; and each metric is on the dashboard.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	raw, err := os.ReadFile("../../outbox/outboxprom/dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(raw, &d))
	known := described(t)
	p := parser.NewParser(parser.Options{})
	asked := map[string]bool{}
	queries := 0
	for _, panel := range d.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			queries++
			text := strings.NewReplacer("$__rate_interval", "5m", "$route", ".*").Replace(target.Expr)
			expr, err := p.ParseExpr(text)
			require.NoError(t, err, "%s: %s", panel.Title, text)
			var used []string // labels
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				switch n := node.(type) {
				case *parser.VectorSelector:
					name := family(n.Name)
					asked[name] = true
					if !assert.Contains(t, known, name, panel.Title) {
						return nil
					}
					for _, m := range n.LabelMatchers {
						if m.Name != model.MetricNameLabel {
							assert.Contains(t, known[name], m.Name, "%s: %s", panel.Title, n)
						}
					}
				case *parser.AggregateExpr:
					used = append(used, n.Grouping...)
				}
				return nil
			})
			for _, m := range regexp.MustCompile(`\{\{([a-z]+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, used, m[1], "%s: the legend names a label that the query leaves out", panel.Title)
			}
			for _, l := range used {
				assert.True(t, l == "le" || slices.ContainsFunc(keys(asked), func(name string) bool { return slices.Contains(known[name], l) }), "%s: %s", panel.Title, l)
			}
		}
	}
	require.Greater(t, queries, 20)
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			m := regexp.MustCompile(`^label_values\(([a-z_]+), ([a-z]+)\)$`).FindStringSubmatch(v.Definition)
			require.NotNil(t, m, v.Definition)
			assert.Contains(t, known[m[1]], m[2])
		}
	}
	for name := range known {
		assert.True(t, asked[name], "%s is on no panel", name)
	}
}

// family is the name of a histogram's series without what Prometheus appends.
func family(name string) string {
	for _, end := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, end)
	}
	return name
}

func keys(m map[string]bool) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}
