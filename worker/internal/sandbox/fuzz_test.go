// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

var fuzzTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// A Pod's annotations can be anything. Reading them does not fail, their values can be returned to callers, and every write based
// on them is a patch.
func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"containers":[{}]}}`,
		`{"spec":{"containers":[{"name":"main"}]},"metadata":{"labels":{"agentbox.navix.sh/sandbox-phase":"running"},` +
			`"annotations":{"agentbox.navix.sh/sandbox-id":"x-east"}}}`,
		podSeed(f, map[string]string{
			v1alpha1.SandboxClaimedAtAnnotationKey: "2026-01-01T00:00:00Z", v1alpha1.SandboxStartedAtAnnotationKey: "9999-12-31T23:59:59-12:00",
			v1alpha1.SandboxTerminatedAtAnnotationKey: "0000-01-01T00:00:00Z",
		}),
		podSeed(f, map[string]string{v1alpha1.SandboxIdleTimeoutAnnotationKey: "9223372036", v1alpha1.SandboxStartupTimeoutAnnotationKey: "-1"}),
		podSeed(f, map[string]string{v1alpha1.SandboxMetadataAnnotationKey: `{"a":"b"}`, v1alpha1.SandboxStopReasonAnnotationKey: "Odd"}),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &corev1.Pod{}
		if json.Unmarshal(data, pod) != nil {
			return
		}
		before, err := json.Marshal(pod)
		if err != nil || len(pod.Spec.Containers) == 0 {
			return // an API server has no such Pod
		}
		state := Read(pod)
		if state.Timeouts.Idle < 0 || state.Timeouts.Startup < 0 || state.Timeouts.MaxLifetime < 0 || state.Timeouts.FirstActivity < 0 ||
			state.Attempt < 0 {
			t.Fatalf("read %+v", state)
		}
		Claimable(pod, nil)
		Observe(pod)
		ContainerID(pod)
		HeldBack(pod)
		pool := &v1alpha1.SandboxPoolSpec{}
		Recyclable(pod, pool)
		ResetDone(pod, pool)
		for _, record := range []proto.Message{
			Record(pod, pool.Runtimes, "east"), TerminalRecord(pod, pool.Runtimes, "east", fuzzTime, nil),
		} {
			if _, err := protojson.Marshal(record); err != nil {
				t.Fatalf("the record cannot be shown: %v", err)
			}
			if _, err := proto.Marshal(record); err != nil {
				t.Fatalf("the record cannot be sent: %v", err)
			}
		}
		claim, _, err := ClaimPatch(pod, &Grant{Claim: Claim{ID: "01x-east"}, Image: "img", Timeouts: Timeouts{Startup: time.Minute},
			Now: fuzzTime})
		checkPatch(t, claim, err)
		checkPatch(t, ReleasePatch(pod, pool, End{StopReason: v1alpha1.SandboxStopReasonReleased}, fuzzTime), nil)
		checkPatch(t, ExpirePatch(pod, pool, End{StopReason: v1alpha1.SandboxStopReasonReleased}, fuzzTime), nil)
		checkPatch(t, TimeoutsPatch(pod, TimeoutsChange{Idle: new(time.Duration)}), nil)
		checkPatch(t, ActivePatch(pod, fuzzTime), nil)
		if after, err := json.Marshal(pod); err != nil || string(after) != string(before) {
			t.Fatalf("reading changed the Pod: %v", err)
		}
	})
}

func checkPatch(t *testing.T, patch []byte, err error) {
	t.Helper()
	if err != nil {
		return
	}
	if _, err := jsonpatch.DecodePatch(patch); err != nil {
		t.Fatalf("%s is no patch: %v", patch, err)
	}
}

func podSeed(f *testing.F, annotations map[string]string) string {
	f.Helper()
	annotations[v1alpha1.SandboxIDAnnotationKey] = "01x-east"
	pod := &corev1.Pod{}
	pod.Annotations, pod.Labels = annotations, map[string]string{v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseRunning,
		v1alpha1.SandboxIDLabelKey: "01x-east"}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "img"}}
	data, err := json.Marshal(pod)
	must.Succeed(f, err)
	return string(data)
}
