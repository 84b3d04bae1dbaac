// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDecide(t *testing.T) {
	pool := func(i int, env, revision string) user {
		return user{Pool: fmt.Sprintf("ns/p%d", i), Env: env, Revision: revision}
	}
	many := &snapshot{Revision: "new"}
	for i := range 1000 {
		many.Pools = append(many.Pools, pool(i, "", "old"))
	}
	for _, tt := range []struct {
		name string
		s    *snapshot
		want string
	}{
		{"unused", &snapshot{Version: "v1", Revision: "new"}, `
Available=True/Validated: version "v1", revision new; nothing uses it
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"in use", &snapshot{Revision: "new", Envs: []string{"ns/b", "ns/a"}, Pools: []user{pool(1, "ns/a", "new"), pool(2, "", "new")}}, `
Available=True/Validated: version "", revision new; pools: 2, of this revision: 2; Envs: ns/a, ns/b; pools without an Env: ns/p2
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"older revisions", &snapshot{Revision: "new", Pools: []user{pool(1, "ns/a", "old"), pool(2, "", "new"), pool(3, "", "")}}, `
Available=True/Validated: version "", revision new; pools: 3, of this revision: 1; pools without an Env: ns/p2, ns/p3
Degraded=True/OlderRevisionsInUse: pools of other revisions than new go on with what they were made from: ns/p1 at old`},
		{"faults", &snapshot{Revision: "new", Faults: []error{errors.New("a is wrong"), errors.New("b is wrong")},
			Pools: []user{pool(1, "", "old")}}, `
Available=False/TemplateInvalid: a is wrong; b is wrong
Degraded=True/TemplateInvalid: no Pods can be made from it; pools: 1, of this revision: 0; pools without an Env: ns/p1, ` +
			`which go on with what they were made from`},
		{"faults, unused", &snapshot{Faults: []error{errors.New("a is wrong")}}, `
Available=False/TemplateInvalid: a is wrong
Degraded=True/TemplateInvalid: no Pods can be made from it; nothing uses it`},
		{"as many users as are named", &snapshot{Envs: []string{"a", "b", "c", "d", "e"}}, `
Available=True/Validated: version "", revision ; pools: 0, of this revision: 0; Envs: a, b, c, d, e
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"being deleted in use", &snapshot{Revision: "new", Deleting: true, Envs: []string{"ns/a"}}, `
Available=True/Validated: version "", revision new; pools: 0, of this revision: 0; Envs: ns/a
Degraded=True/TemplateDeleted: being deleted; pools: 0, of this revision: 0; Envs: ns/a, which go on with what they were made from, ` +
			`and cannot be made anew`},
		{"being deleted unused", &snapshot{Revision: "new", Deleting: true}, `
Available=True/Validated: version "", revision new; nothing uses it
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"a thousand users", many, `
Available=True/Validated: version "", revision new; pools: 1000, of this revision: 0; pools without an Env: ns/p0, ns/p1, ns/p10, ` +
			`ns/p100, ns/p101 and 995 more
Degraded=True/OlderRevisionsInUse: pools of other revisions than new go on with what they were made from: ns/p0 at old, ns/p1 at old, ` +
			`ns/p10 at old, ns/p100 at old, ns/p101 at old and 995 more`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			for _, c := range decide(tt.s) {
				fmt.Fprintf(&got, "\n%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			if got.String() != tt.want {
				t.Errorf("got %s\nwant %s", got.String(), tt.want)
			}
		})
	}
}
