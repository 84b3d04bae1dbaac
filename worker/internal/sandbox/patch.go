// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// patch writes an RFC 6902 document front to back. Tests come first.
type patch struct{ buf []byte }

func newPatch(size int) *patch {
	return &patch{buf: append(make([]byte, 0, size), '[')}
}

func (p *patch) bytes() []byte {
	if n := len(p.buf); p.buf[n-1] == ',' {
		p.buf[n-1] = ']'
		return p.buf
	}
	return append(p.buf, ']')
}

// Paths of the maps that every Pod of a pool is created with.
const (
	labelsPath      = "/metadata/labels/"
	annotationsPath = "/metadata/annotations/"
)

func (p *patch) testUID(pod *corev1.Pod) { p.op("test", "/metadata/uid", "", string(pod.UID)) }

// testAlive makes the patch fail on a Pod that is being deleted. On other Pods it passes, because a missing member equals null.
func (p *patch) testAlive() {
	p.buf = append(p.buf, `{"op":"test","path":"/metadata/deletionTimestamp","value":null},`...)
}

func (p *patch) testLabel(key, value string)     { p.op("test", labelsPath, key, value) }
func (p *patch) setLabel(key, value string)      { p.op("add", labelsPath, key, value) }
func (p *patch) setAnnotation(key, value string) { p.op("add", annotationsPath, key, value) }

// testAnnotation tests that an annotation has the value that the caller saw. As in testAlive, a missing member equals null.
func (p *patch) testAnnotation(pod *corev1.Pod, key string) {
	p.testMember(annotationsPath, pod.Annotations, key)
}

func (p *patch) testMember(parent string, members map[string]string, key string) {
	if value, ok := members[key]; ok {
		p.op("test", parent, key, value)
		return
	}
	p.buf = append(p.buf, `{"op":"test","path":"`...)
	p.path(parent, key)
	p.buf = append(p.buf, `","value":null},`...)
}

func (p *patch) setTime(key string, t time.Time) { p.setAnnotation(key, formatTime(t)) }

// setSeconds writes a timeout unless it is zero.
func (p *patch) setSeconds(key string, d time.Duration) {
	if d > 0 {
		p.setAnnotation(key, formatSeconds(d))
	}
}

// setText writes an annotation unless it is empty.
func (p *patch) setText(key, value string) {
	if value != "" {
		p.setAnnotation(key, value)
	}
}

// dropLabel removes a label if pod has it, because removing a missing label would fail the whole patch.
func (p *patch) dropLabel(pod *corev1.Pod, key string) {
	if _, ok := pod.Labels[key]; ok {
		p.buf = append(p.buf, `{"op":"remove","path":"`...)
		p.path(labelsPath, key)
		p.buf = append(p.buf, `"},`...)
	}
}

// clear empties an annotation if pod has it.
func (p *patch) clear(pod *corev1.Pod, key string) {
	if pod.Annotations[key] != "" {
		p.setAnnotation(key, "")
	}
}

func (p *patch) testImage(value string) { p.op("test", "/spec/containers/0/image", "", value) }
func (p *patch) setImage(value string)  { p.op("replace", "/spec/containers/0/image", "", value) }

// dropManagedFields removes the managed fields. From then on the API server does not track them for this Pod, until a server-side apply.
// That saves a fifth of the cost of the claim and of every later write, including the kubelet's. In the API, a list of one empty entry
// clears the managed fields: https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields.
func (p *patch) dropManagedFields() {
	p.buf = append(p.buf, `{"op":"add","path":"/metadata/managedFields","value":[{}]},`...)
}

func (p *patch) op(op, parent, key, value string) {
	p.buf = append(p.buf, `{"op":"`...)
	p.buf = append(p.buf, op...)
	p.buf = append(p.buf, `","path":"`...)
	p.path(parent, key)
	p.buf = append(p.buf, `","value":`...)
	p.buf = appendString(p.buf, value)
	p.buf = append(p.buf, "},"...)
}

// path escapes the last token as RFC 6901 requires. The keys are those of labels and annotations, so no byte needs escaping as
// JSON.
func (p *patch) path(parent, key string) {
	p.buf = append(p.buf, parent...)
	for i := range len(key) {
		switch c := key[i]; c {
		case '~':
			p.buf = append(p.buf, "~0"...)
		case '/':
			p.buf = append(p.buf, "~1"...)
		default:
			p.buf = append(p.buf, c)
		}
	}
}

// appendString appends s in quotes. It uses encoding/json only for strings that are not plain text.
func appendString(buf []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(buf, `""`...) // unreachable: every string has a JSON form
			}
			return append(buf, quoted...)
		}
	}
	buf = append(buf, '"')
	buf = append(buf, s...)
	return append(buf, '"')
}

// testTenant makes the patch fail unless the Pod has this sandbox, in any phase.
func (p *patch) testTenant(pod *corev1.Pod) {
	p.testUID(pod)
	p.testLabel(v1alpha1.SandboxIDLabelKey, pod.Labels[v1alpha1.SandboxIDLabelKey])
}

// testSandbox makes the patch fail unless the Pod has the phase and the sandbox that the caller saw on it.
func (p *patch) testSandbox(pod *corev1.Pod) {
	p.testUID(pod)
	// Test the label as it is, even if it is wrong, because the transition corrects it.
	p.testMember(labelsPath, pod.Labels, v1alpha1.SandboxPhaseLabelKey)
	if id, ok := pod.Labels[v1alpha1.SandboxIDLabelKey]; ok {
		p.testLabel(v1alpha1.SandboxIDLabelKey, id)
	}
}

func (p *patch) setPhase(phase Phase) { p.setLabel(v1alpha1.SandboxPhaseLabelKey, string(phase)) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
