// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"navix.sh/atoll/api/v1alpha1"
)

const (
	// writeTimeout is how long one write may take before its outcome is looked up. A slower API server also costs the lease; see package
	// lease. A server that responds within it fails no claim, however slow it is.
	writeTimeout = 7 * time.Second
	// listPage bounds the response size of a live list. All pages are of one resourceVersion.
	listPage = 1000
	// maxEventsRead is the maximum number of events that one read fetches.
	maxEventsRead = 200

	fieldManager = "atoll-worker"
)

// Client is the claim path's own client of the API server. It shares no connections with watches, and has no client-side limit.
type Client struct{ core typedv1.CoreV1Interface }

// NewClient returns a Client of the worker's configuration.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.ContentType = runtime.ContentTypeProtobuf
	if cfg.Dial == nil {
		// client-go shares one transport between equal configurations. A dialer of its own makes this configuration different.
		cfg.Dial = (&net.Dialer{Timeout: writeTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	core, err := typedv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the claim path's client: %w", err)
	}
	return &Client{core: core}, nil
}

// Patch sends a JSON patch. The client may repeat it.
func (c *Client) Patch(ctx context.Context, pod *corev1.Pod, body []byte, subresource ...string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.core.Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, body, metav1.PatchOptions{
		FieldManager: fieldManager,
	}, subresource...)
}

// PatchOnce sends a JSON patch once. The client does not repeat it when a server responds with Retry-After, as it otherwise does: the
// meaning of a response depends on whether an earlier try was unclear.
func (c *Client) PatchOnce(ctx context.Context, pod *corev1.Pod, body []byte) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	answer := &corev1.Pod{}
	err := c.core.RESTClient().Patch(types.JSONPatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, scheme.ParameterCodec).
		Body(body).MaxRetries(0).Do(ctx).Into(answer)
	return answer, err
}

// Delete deletes a Pod if it has not changed since it was read. It returns the Pod, which its finalizer still holds.
func (c *Client) Delete(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	answer := &corev1.Pod{}
	err := c.core.RESTClient().Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}).
		Do(ctx).Into(answer)
	return answer, err
}

// Read reads a Pod live, bypassing every cache.
func (c *Client) Read(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.core.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
}

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// Warnings lists the first Warning events about a Pod, in no order.
func (c *Client) Warnings(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	list, err := c.core.Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(), Limit: maxEventsRead,
	})
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	return list.Items, nil
}

// claimed lists live every Pod that carries a sandbox, in the given namespaces, or in all if there are none.
func (c *Client) claimed(ctx context.Context, namespaces []string) ([]corev1.Pod, error) {
	options := metav1.ListOptions{
		LabelSelector: v1alpha1.SandboxPoolLabelKey + "," + v1alpha1.SandboxIDLabelKey,
		Limit:         listPage,
	}
	var pods []corev1.Pod
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		for {
			page, err := c.core.Pods(namespace).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("listing claimed pods: %w", err)
			}
			pods = append(pods, page.Items...)
			if options.Continue = page.Continue; options.Continue == "" {
				break
			}
		}
	}
	return pods, nil
}
