// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// plant is the transport to an API server that has Pods and nothing else, and takes no time.
type plant struct {
	t *testing.T

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	patches int
	// answer is what comes of the n-th patch, from 1, and of reads as the 0-th; carry carries it out. nil: all is carried out.
	answer func(n int, carry func() (*http.Response, error)) (*http.Response, error)
}

// newPlant has the service talk to an API server with the Pods of the test in it.
func newPlant(s *station, pods ...*corev1.Pod) *plant {
	s.t.Helper()
	p := &plant{t: s.t, pods: map[string]*corev1.Pod{}, version: 1000}
	for _, pod := range pods {
		p.pods[pod.Name] = pod
	}
	var err error
	if s.opts.Pods, err = NewPods(&rest.Config{Host: "http://api", Transport: p}); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// set changes what comes of requests.
func (p *plant) set(answer func(n int, carry func() (*http.Response, error)) (*http.Response, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *plant) pod(name string) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[name]
}

// lost is the connection that breaks before the answer.
func (p *plant) lost() (*http.Response, error) { return nil, errors.New("connection reset by peer") }

// status is a refusal. One that says when to come again is of an overloaded server's filter, and plain text.
func (p *plant) status(code int, retryAfter string) (*http.Response, error) {
	if retryAfter != "" {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}, "Retry-After": {retryAfter}},
			Body: io.NopCloser(strings.NewReader(http.StatusText(code))),
		}, nil
	}
	return p.respond(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Message: http.StatusText(code),
		Reason: map[int]metav1.StatusReason{
			http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
			http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
			http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		}[code],
	}), nil
}

func (p *plant) respond(code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		p.t.Error(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// RoundTrip answers a read or a patch of a Pod.
func (p *plant) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	n, answer := 0, p.answer
	if r.Method == http.MethodPatch {
		p.patches++
		n = p.patches
	}
	p.mu.Unlock()
	carry := func() (*http.Response, error) { return p.carry(r) }
	if answer == nil {
		return carry()
	}
	return answer(n, carry)
}

func (p *plant) carry(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.pods[path.Base(r.URL.Path)]
	switch {
	case pod == nil:
		return p.status(http.StatusNotFound, "")
	case r.Method == http.MethodGet:
		return p.respond(http.StatusOK, asWritten(pod)), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	next, err := p.patched(pod, body)
	if err != nil {
		return p.status(http.StatusUnprocessableEntity, "")
	}
	return p.respond(http.StatusOK, next), nil
}

// patched is a Pod after a patch, which fails if one of its tests does. The lock is held.
func (p *plant) patched(pod *corev1.Pod, body []byte) (*corev1.Pod, error) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(asWritten(pod))
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, err
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	p.version++
	next.ResourceVersion = strconv.Itoa(p.version)
	p.pods[next.Name] = next
	return next, nil
}

// apply writes a patch past the service, as another controller does.
func (p *plant) apply(name string, body []byte) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.patched(p.pods[name], body); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) put(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.Name] = pod
}

func asWritten(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{"born": "with all maps"}
	}
	return pod
}

func (s *station) keyed(key string, attempt int32) Claim {
	return Claim{
		Request: &sandboxv1.CreateSandboxRequest{Team: "red", User: "ann", ClaimKey: key, Wait: sandboxv1.CreateSandboxRequest_ASSIGNED},
		Pool:    s.pool.key, KeyHash: sandbox.KeyHash("red", "default", key), Attempt: attempt,
	}
}
