// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/snapshot"
)

// A long message does not keep the whole status from being written: conditions end where the schema's limit is.
func TestLongMessagesAreClipped(t *testing.T) {
	const limit = 32768 // of the schema, in characters
	many, long := 32, strings.Repeat("é", 1000)
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	env.Spec.TemplateRef = v1alpha1.SandboxEnvTemplateRef{Name: "base", Version: "v1"}
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: local}}
	o := &observation{
		clusterID: local, pools: map[string]*v1alpha1.SandboxPool{},
		Source: snapshot.Source{Env: env, Template: &podtemplate.Template{Name: "base", Version: "v1"}},
	}
	p := &plan{}
	for i := range many {
		name := fmt.Sprintf("m%02d", i)
		env.Spec.Clusters[0].Members = append(env.Spec.Clusters[0].Members, v1alpha1.EnvClusterMember{Name: name})
		p.members = append(p.members, memberPlan{name: name, state: v1alpha1.ObservedMemberStateMissing, message: long})
		o.pools[name] = &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{UID: "u"}},
			Annotations:     map[string]string{v1alpha1.SandboxPoolTemplateVersionAnnotationKey: long},
		}}
	}
	check := func(conditionType string, status metav1.ConditionStatus, begins string) {
		t.Helper()
		c := meta.FindStatusCondition(conditionsOf(o, p, testclock.NewFakePassiveClock(testTime)), conditionType)
		if c == nil || c.Status != status || len(c.Message) > limit || !utf8.ValidString(c.Message) ||
			!strings.HasPrefix(c.Message, begins) || !strings.HasSuffix(c.Message, "…") {
			t.Errorf("want at most %d bytes of %q, got %+.200v", limit, begins, c)
		}
	}
	check(v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, "m00: "+long+"; m01: ")
	check(v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionFalse, "m00: made from version "+long+"; m01: ")

	env.Spec.Clusters[0].Members, env.Spec.TemplateRef.Version, o.Template.Version = nil, "", strings.Repeat(long, many)
	check(v1alpha1.SandboxEnvConditionTemplateConsistent, metav1.ConditionTrue, "template base, version \"é")
}
