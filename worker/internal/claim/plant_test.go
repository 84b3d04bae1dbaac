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
	// changed hears of every patch that was carried out.
	changed func(pod *corev1.Pod)
}

// newPlant has the service talk to an API server with the Pods of the test in it.
func newPlant(s *station, pods ...*corev1.Pod) *plant {
	s.t.Helper()
	p := &plant{t: s.t, pods: map[string]*corev1.Pod{}, version: 1000, changed: func(*corev1.Pod) {}}
	for _, pod := range pods {
		p.pods[pod.Name] = pod
	}
	var err error
	if s.opts.Pods, err = NewPods(&rest.Config{Host: "http://api", Transport: p}); err != nil {
		s.t.Fatal(err)
	}
	return p
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
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return p.status(http.StatusBadRequest, "")
	}
	before, err := json.Marshal(asWritten(pod))
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return p.status(http.StatusUnprocessableEntity, "")
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	p.version++
	next.ResourceVersion = strconv.Itoa(p.version)
	p.pods[next.Name] = next
	p.changed(next)
	return p.respond(http.StatusOK, next), nil
}

func asWritten(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{"born": "with all maps"}
	}
	return pod
}
