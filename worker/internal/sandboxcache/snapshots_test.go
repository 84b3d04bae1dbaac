// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"encoding/json"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// A member's snapshot is read from where it is, as a Go type and as a document alike, and so are its replicas.
func TestMembersHaveTheirSnapshots(t *testing.T) {
	const (
		makesPods = `template: {spec: {containers: [{name: main}]}}`
		ofStatus  = `{clusterID: east, name: a, metadata: {labels: {tier: gold}}, spec: {replicas: 4, ` + makesPods + `}}`
		elsewhere = `{clusterID: west, name: a, spec: {replicas: 4, ` + makesPods + `}}`
		bare      = `{clusterID: east, name: a, spec: {replicas: 1, ` + makesPods + `}}`
		ofSpec    = `{name: a, metadata: {labels: {tier: lead}}, spec: {replicas: 2, template: {spec: {containers: [{name: own}]}}}}`
	)
	for name, tc := range map[string]struct {
		member, snapshot string
		image, tier      string // "": it has no snapshot
		replicas         int32
		stated           bool
	}{
		"in the status":             {`{name: a}`, ofStatus, "main", "gold", 4, false},
		"with replicas stated":      {`{name: a, spec: {replicas: 7}}`, ofStatus, "main", "gold", 7, false},
		"with no replicas stated":   {`{name: a, spec: {replicas: 0}}`, ofStatus, "main", "gold", 0, false},
		"of another member":         {`{name: b}`, ofStatus, "", "", 0, false},
		"stated by the manifest":    {ofSpec, ofStatus, "own", "lead", 2, true},
		"not yet":                   {`{name: a, spec: {replicas: 3}}`, elsewhere, "", "", 3, false},
		"one that makes no Pods":    {`{name: a}`, `{clusterID: east, name: a, spec: {replicas: 4}}`, "", "", 0, false},
		"without labels of its own": {`{name: a, metadata: {labels: {tier: lead}}}`, bare, "main", "", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := yaml.YAMLToJSON([]byte(`{spec: {clusters: [{clusterID: east, members: [` + tc.member + `]}]}, status: {snapshots: [` +
				tc.snapshot + `]}}`))
			must.Succeed(t, err)
			env, doc := &v1alpha1.SandboxEnv{}, map[string]any{}
			must.Succeed(t, json.Unmarshal(content, env))
			must.Succeed(t, json.Unmarshal(content, &doc))
			cached, err := Transform(env)(env.DeepCopy())
			must.Succeed(t, err)
			filled, stated := MemberDocument(doc, memberOf(doc), "east")
			if stated != tc.stated {
				t.Errorf("the manifest states it: %t", stated)
			}
			again := &v1alpha1.EnvClusterMember{}
			encoded, err := json.Marshal(filled)
			must.Succeed(t, err)
			must.Succeed(t, json.Unmarshal(encoded, again))
			typed := cached.(*v1alpha1.SandboxEnv).MembersOf("east")[0]
			for form, member := range map[string]*v1alpha1.EnvClusterMember{"typed": typed, "document": again} {
				image := ""
				if containers := member.Spec.Template.Spec.Containers; len(containers) > 0 {
					image = containers[0].Name
				}
				if image != tc.image || tc.image != "" && member.Metadata.Labels["tier"] != tc.tier || member.Spec.Replicas != tc.replicas {
					t.Errorf("%s: %+v", form, member)
				}
			}
			unread := map[string]any{}
			must.Succeed(t, json.Unmarshal(content, &unread))
			if !reflect.DeepEqual(doc, unread) {
				t.Error("the document was changed")
			}
		})
	}
}

func memberOf(doc map[string]any) map[string]any {
	clusters := doc["spec"].(map[string]any)["clusters"].([]any)
	return clusters[0].(map[string]any)["members"].([]any)[0].(map[string]any)
}
