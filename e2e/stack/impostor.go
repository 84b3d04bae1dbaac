// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/wait"
)

// barePod is a program in its own Pod, a copy of a worker's.
type barePod struct {
	deployed
	template corev1.PodTemplateSpec
}

// barePodLabel distinguishes the Pod from the Deployment's.
const barePodLabel = "atoll-e2e"

func (c *charts) workerAs(cluster, clusterID, certificateOf string) (Program, error) {
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	m := c.members[cluster]
	deployment, err := m.core.AppsV1().Deployments(Namespace).Get(ctx, "atoll-worker", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the worker's Deployment in %s: %w", cluster, err)
	}
	name := "worker-" + cluster + "-as-" + clusterID + "-cert-" + certificateOf
	secret := "cert-" + certificateOf
	if err := m.tlsSecret(ctx, secret, c.stack.certs[certificateOf]); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	template := deployment.Spec.Template
	template.Name, template.Labels = name, map[string]string{barePodLabel: name}
	spec := &template.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	// The last of repeated flags counts.
	spec.Containers[0].Args = append(spec.Containers[0].Args, "--cluster-id="+clusterID)
	for i := range spec.Volumes {
		if spec.Volumes[i].Secret != nil {
			spec.Volumes[i].Secret.SecretName = secret
		}
	}
	p := &barePod{template: template, deployed: deployed{
		name: name, container: spec.Containers[0].Name, member: m, selector: barePodLabel + "=" + name,
	}}
	p.logs = follow(m.core, p.selector, p.container, filepath.Join(c.stack.opts.LogDir, name+".log"))
	p.down.Store(true)
	m.programs = append(m.programs, &p.deployed)
	return p, nil
}

func (p *barePod) Start(ctx context.Context) error {
	pod := &corev1.Pod{ObjectMeta: p.template.ObjectMeta, Spec: p.template.Spec}
	if _, err := p.member.core.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Pod of %s: %w", p.name, err)
	}
	p.down.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return wait.Until(ctx, waitPatience, p.name+" to be ready", func(ctx context.Context) error {
		got, err := p.pod(ctx)
		if err != nil {
			return err
		}
		if got.Status.Phase == corev1.PodFailed || got.Status.Phase == corev1.PodSucceeded {
			cancel(errors.New("it has ended"))
		}
		return unready(got)
	})
}

// Kill deletes the Pod at once.
func (p *barePod) Kill() error { return p.remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) }

func (p *barePod) Stop() error { return p.remove(metav1.DeleteOptions{}) }

func (p *barePod) remove(options metav1.DeleteOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	if err := p.member.core.CoreV1().Pods(Namespace).Delete(ctx, p.name, options); err != nil {
		return fmt.Errorf("deleting the Pod of %s: %w", p.name, err)
	}
	p.down.Store(true)
	return p.waitGone(ctx)
}
