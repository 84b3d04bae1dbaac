// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups="",resources=pods/exec,verbs=get;create

// Cluster reads Pods and runs commands in them through a cluster's API server.
type Cluster struct {
	cfg    *rest.Config
	client typedv1.CoreV1Interface
}

// NewCluster returns a Cluster of the worker's configuration.
func NewCluster(cfg *rest.Config) (*Cluster, error) {
	client, err := typedv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the client for hooks: %w", err)
	}
	return &Cluster{cfg: cfg, client: client}, nil
}

// Pod reads a Pod live, bypassing every cache.
func (c *Cluster) Pod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	return c.client.Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}

// Exec runs a command, and returns an error unless it exits with 0. The error is errOutcomeUnknown unless the command has ended or was
// refused. Its output is discarded.
func (c *Cluster) Exec(ctx context.Context, pod types.NamespacedName, container string, command []string) error {
	at := c.client.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := c.executor(at)
	if err != nil {
		return err
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	var ended exec.CodeExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return fmt.Errorf("exit code %d", ended.Code)
	case isRefused(err):
		return err
	}
	return fmt.Errorf("%w: %w", errOutcomeUnknown, err)
}

// isRefused reports whether the API server itself refused to start the command.
func isRefused(err error) bool {
	var failure *httpstream.UpgradeFailureError
	var status apierrors.APIStatus
	return errors.As(err, &failure) && errors.As(failure.Cause, &status)
}

// executor returns an executor that uses WebSocket, and falls back to SPDY if a proxy in between does not support that.
func (c *Cluster) executor(at *url.URL) (remotecommand.Executor, error) {
	socket, err := remotecommand.NewWebSocketExecutor(c.cfg, "GET", at.String())
	if err != nil {
		return nil, fmt.Errorf("preparing exec: %w", err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.cfg, "POST", at)
	if err != nil {
		return nil, fmt.Errorf("preparing exec: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) && !isRefused(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("preparing exec: %w", err)
	}
	return executor, nil
}
