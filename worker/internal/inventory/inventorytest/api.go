// SPDX-License-Identifier: Apache-2.0

package inventorytest

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

	"navix.sh/atoll/api/v1alpha1"
)

// Respond returns the response to the n-th patch, counted from 1, and to reads with n = 0. carry carries the request out.
type Respond func(n int, carry func() (*http.Response, error)) (*http.Response, error)

// maxBody bounds the bytes read from a request.
const maxBody = 1 << 20

// API is the transport to an API server that has only Pods and responds without delay.
type API struct {
	t *testing.T

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	patches int
	respond Respond // nil carries out all requests
}

func newAPI(t *testing.T) *API { return &API{t: t, pods: map[string]*corev1.Pod{}, version: 1000} }

// Respond sets the responses; nil carries out all requests.
func (a *API) Respond(respond Respond) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.respond = respond
}

// Pod returns a Pod as it is now.
func (a *API) Pod(name string) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[name]
}

// Put creates or updates Pods.
func (a *API) Put(pods ...*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		a.pods[pod.Name] = pod
	}
}

// Patches returns how many patches were sent.
func (a *API) Patches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.patches
}

// Lost returns the error of a connection that breaks before the response.
func (a *API) Lost() (*http.Response, error) { return nil, errors.New("connection reset by peer") }

// Status returns a refusal. With a Retry-After it looks like that of an overloaded server's filter, in plain text.
func (a *API) Status(code int, retryAfter string) (*http.Response, error) {
	if retryAfter != "" {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}, "Retry-After": {retryAfter}},
			Body: io.NopCloser(strings.NewReader(http.StatusText(code))),
		}, nil
	}
	return a.response(code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: http.StatusText(code),
		Reason: map[int]metav1.StatusReason{
			http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
			http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
			http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		}[code],
	}), nil
}

func (a *API) response(code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		a.t.Error(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// RoundTrip carries out a list of all sandboxes, or a read or a patch of a Pod.
func (a *API) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	n, respond := 0, a.respond
	if r.Method == http.MethodPatch {
		a.patches++
		n = a.patches
	}
	a.mu.Unlock()
	carry := func() (*http.Response, error) { return a.carry(r) }
	if respond == nil {
		return carry()
	}
	return respond(n, carry)
}

func (a *API) carry(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := path.Base(r.URL.Path)
	pod := a.pods[name]
	switch {
	case name == "pods":
		return a.response(http.StatusOK, a.claimed()), nil
	case pod == nil:
		return a.Status(http.StatusNotFound, "")
	case r.Method == http.MethodGet:
		return a.response(http.StatusOK, asWritten(pod)), nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	next, err := a.patched(pod, body)
	if err != nil {
		return a.Status(http.StatusUnprocessableEntity, "")
	}
	return a.response(http.StatusOK, next), nil
}

func (a *API) claimed() *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, pod := range a.pods {
		if pod.Labels[v1alpha1.SandboxIDLabelKey] != "" {
			list.Items = append(list.Items, *pod)
		}
	}
	return list
}

// patched returns a Pod after a patch, which fails if one of its tests does. The caller holds the lock.
func (a *API) patched(pod *corev1.Pod, body []byte) (*corev1.Pod, error) {
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
	a.version++
	next.ResourceVersion = strconv.Itoa(a.version)
	a.pods[next.Name] = next
	return next, nil
}

// Apply applies a patch directly, as another controller does.
func (a *API) Apply(name string, body []byte) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.patched(a.pods[name], body); err != nil {
		a.t.Fatal(err)
	}
}

func asWritten(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{"born": "with all maps"}
	}
	return pod
}
