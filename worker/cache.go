// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stripPod halves a Pod before it is cached. What decides whether a Pod can be handed out or reset stays whole: volumes
// and mounts, security contexts, shared namespaces, restart policies, and every status of the main containers. Nobody may send a
// stripped Pod back; writes to Pods are patches written by hand.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	spec := &pod.Spec
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			*c = corev1.Container{
				Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy,
				SecurityContext: c.SecurityContext, VolumeMounts: c.VolumeMounts,
			}
		}
	}
	spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints = nil, nil, nil
	spec.ImagePullSecrets, spec.HostAliases, spec.DNSConfig = nil, nil, nil
	// Of init containers only those that keep the Pod from being ready: they tell why.
	var stuck []corev1.ContainerStatus
	for _, cs := range pod.Status.InitContainerStatuses {
		if w, t := cs.State.Waiting, cs.State.Terminated; w != nil && w.Reason != "PodInitializing" || t != nil && t.ExitCode != 0 {
			stuck = append(stuck, corev1.ContainerStatus{Name: cs.Name, State: cs.State})
		}
	}
	pod.Status.InitContainerStatuses = stuck
	return pod, nil
}

// stripNode keeps of a Node what decides whether its Pods can serve: a Node lists every image it has.
func stripNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations = nil, nil
		node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
		node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions}
	}
	return object, nil
}

// newClient gives writes connections of their own: an API server takes a limited number of streams on one, and watches
// hold theirs for ever.
func newClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	// client-go shares one transport between equal configurations; a dialer of its own makes this one unequal.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the client for writes: %w", err)
	}
	opts.HTTPClient = httpClient
	return client.New(cfg, opts)
}
