// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/charts"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/catalog"
)

// health runs the script that Argo CD is given, as Argo CD does: obj is the object, and what it returns has status and message.
func health(t *testing.T, o map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", toLua(l, o))
	must.Succeed(t, l.DoString(charts.ArgoHealth))
	table, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %v", l.Get(-1))
	}
	return lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, one := range v {
			table.RawSetString(key, toLua(l, one))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, one := range v {
			table.Append(toLua(l, one))
		}
		return table
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	}
	return lua.LNil
}

// Argo CD shows what the hub tells, by the script of the chart.
func TestHealth(t *testing.T) {
	summary := func(state sandboxv1.CatalogCluster_State, reconciling, stalled string) catalog.Summary {
		return catalog.Summary{State: state, Message: "m", Reconciling: reconciling, Stalled: stalled}
	}
	notReady := func(reason string) map[string]any {
		return map[string]any{"type": "Ready", "status": "False", "reason": reason, "message": "r"}
	}
	for _, tt := range []struct {
		name          string
		refused       string
		summary       catalog.Summary
		ahead         int64 // how many generations later the object is
		more          map[string]any
		want, message string
	}{
		{"applied", "", summary(sandboxv1.CatalogCluster_APPLIED, "", ""), 0, nil, "Healthy", "m"},
		{"a cluster is away", "", summary(sandboxv1.CatalogCluster_PENDING, "Pending", ""), 0, nil, "Progressing", "m"},
		{"a stage goes on", "", summary(sandboxv1.CatalogCluster_APPLIED, "Rollout", ""), 0, nil, "Progressing", "m"},
		{"a stage failed", "", summary(sandboxv1.CatalogCluster_APPLIED, "", "StageNotReady"), 0, nil, "Degraded", "m"},
		{"a conflict", "", summary(sandboxv1.CatalogCluster_CONFLICT, "", "Conflict"), 0, nil, "Degraded", "m"},
		{"refused", "bad", catalog.Summary{}, 0, nil, "Degraded", "bad"},
		{"an older generation", "", summary(sandboxv1.CatalogCluster_APPLIED, "", ""), 1, nil, "Progressing",
			"The hub has not looked at it yet"},
		{"members start", "", summary(sandboxv1.CatalogCluster_APPLIED, "", ""), 0, notReady("MembersMissing"), "Progressing", "r"},
		{"members are invalid", "", summary(sandboxv1.CatalogCluster_APPLIED, "", ""), 0, notReady("MembersInvalid"), "Degraded", "r"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(3)}}}
			o.Object["status"] = status(o, conditions(3, tt.refused, tt.summary), time.Unix(1, 0))
			if tt.more != nil {
				all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				must.Succeed(t, unstructured.SetNestedSlice(o.Object, append(all, tt.more), "status", "conditions"))
			}
			o.SetGeneration(3 + tt.ahead)
			if got, message := health(t, o.Object); got != tt.want || message != tt.message {
				t.Errorf("got %s, %q; want %s, %q", got, message, tt.want, tt.message)
			}
		})
	}
	if got, _ := health(t, map[string]any{"metadata": map[string]any{"generation": int64(1)}}); got != "Progressing" {
		t.Errorf("a new object is %s", got)
	}
}

// A status that is there is not written again, and a condition keeps its time while its status is the same.
func TestStatusIsWrittenOnce(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(3)}}}
	pending := catalog.Summary{State: sandboxv1.CatalogCluster_PENDING, Message: "m", Reconciling: "Pending"}
	o.Object["status"] = status(o, conditions(3, "", pending), time.Unix(1, 0))
	if again := status(o, conditions(3, "", pending), time.Unix(9, 0)); again != nil {
		t.Errorf("it is written again: %v", again)
	}
	pending.Message = "other"
	o.Object["status"] = status(o, conditions(3, "", pending), time.Unix(9, 0))
	is, _ := current(o)
	if want := metav1.NewTime(time.Unix(1, 0)); len(is) != 2 || is[0].Message != "other" || !is[0].LastTransitionTime.Equal(&want) {
		t.Errorf("got %v", is)
	}
	o.SetGeneration(4)
	if status(o, conditions(4, "", pending), time.Unix(9, 0)) == nil {
		t.Error("a new generation is not told of")
	}
}
