// SPDX-License-Identifier: Apache-2.0

package visibility

import (
	"testing"

	"navix.sh/atoll/api/v1alpha1"
)

func TestSees(t *testing.T) {
	rules := func(r ...v1alpha1.TemplateVisibilityRule) *v1alpha1.TemplateVisibility {
		return &v1alpha1.TemplateVisibility{Rules: r}
	}
	ann := Caller{"red", "ann"}
	for _, tt := range []struct {
		name   string
		caller Caller
		v      *v1alpha1.TemplateVisibility
		want   bool
	}{
		{"nil is public", ann, nil, true},
		{"no rules is public", ann, rules(), true},
		{"public to an unnamed caller as well", Caller{}, nil, true},
		{"the team", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "red"}), true},
		{"another team", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "blue"}), false},
		{"the user of any team", ann, rules(v1alpha1.TemplateVisibilityRule{Users: []string{"bob", "ann"}}), true},
		{"another user", ann, rules(v1alpha1.TemplateVisibilityRule{Users: []string{"bob"}}), false},
		{"team and user", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "red", Users: []string{"ann"}}), true},
		{"the team, not the user", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "red", Users: []string{"bob"}}), false},
		{"the user, not the team", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "blue", Users: []string{"ann"}}), false},
		{"the second rule", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "blue"}, v1alpha1.TemplateVisibilityRule{Users: []string{"ann"}}),
			true},
		{"halves of two rules", ann, rules(v1alpha1.TemplateVisibilityRule{Team: "red", Users: []string{"bob"}},
			v1alpha1.TemplateVisibilityRule{Team: "blue", Users: []string{"ann"}}), false},
		{"an empty rule matches every caller", ann, rules(v1alpha1.TemplateVisibilityRule{}), true},
		{"no team is not any team", Caller{User: "ann"}, rules(v1alpha1.TemplateVisibilityRule{Team: "red"}), false},
		{"an empty user in the list matches no caller", Caller{Team: "red"}, rules(v1alpha1.TemplateVisibilityRule{Users: []string{""}}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.caller.Sees(tt.v); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestSeen(t *testing.T) {
	open, hidden := v1alpha1.SandboxTemplate{}, v1alpha1.SandboxTemplate{}
	open.Name, hidden.Name = "open", "hidden"
	hidden.Spec.Visibility = &v1alpha1.TemplateVisibility{Rules: []v1alpha1.TemplateVisibilityRule{{Team: "blue"}}}
	got := Caller{Team: "red"}.Seen([]v1alpha1.SandboxTemplate{hidden, open})
	if len(got) != 1 || got[0].Name != "open" {
		t.Errorf("got %v, want open alone", got)
	}
}
