// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
)

// Names that every cluster has.
const (
	Namespace   = "default"
	PoolImage   = "sim.local/pool:1"
	TenantImage = "sim.local/tenant:1"

	nodeName = "node"
	lagMost  = 40 * time.Millisecond // of watches
)

// Cluster is a Kubernetes cluster: API server, etcd, one node with its kubelet.
type Cluster struct {
	ID      string
	server  *server
	kubelet *kubelet
	journal *journal

	mu      sync.Mutex
	trouble Trouble
	offset  time.Duration // of the API server's clock
	onWrite func(pod *corev1.Pod)
}

// NewCluster starts a cluster. uid is the uid of its kube-system namespace.
func NewCluster(id, uid string, seed uint64) (*Cluster, error) {
	c := &Cluster{ID: id, server: newServer(seed), journal: newJournal()}
	c.kubelet = newKubelet(c.server)
	c.server.changed = func(before, after *corev1.Pod) {
		c.journal.saw(before, after)
		c.kubelet.saw(before, after)
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(uid)}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, object := range []client.Object{system, node} {
		if _, err := c.server.create(object); err != nil {
			return nil, fmt.Errorf("starting cluster %s: %w", id, err)
		}
	}
	return c, nil
}

func (c *Cluster) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// SetClock sets the offset of the API server's clock.
func (c *Cluster) SetClock(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

// SetTrouble sets the faults for requests that begin from now on; the zero value ends all faults.
func (c *Cluster) SetTrouble(t Trouble) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = t
}

// OnClaim makes the cluster call do once, after the next write that assigns a Pod to a claim, and before its response.
func (c *Cluster) OnClaim(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWrite = func(pod *corev1.Pod) {
		if pod.Labels[v1alpha1.SandboxIDLabelKey] == "" {
			return
		}
		c.mu.Lock()
		c.onWrite = nil
		c.mu.Unlock()
		do()
	}
}

func (c *Cluster) plan(writes bool) journey {
	c.mu.Lock()
	t := c.trouble
	c.mu.Unlock()
	const hundred = 100
	s := c.server
	j := journey{there: 500*time.Microsecond + s.draw(2*time.Millisecond+t.Slow), back: 200*time.Microsecond + s.draw(time.Millisecond)}
	chance := func(of int) bool { return of > 0 && s.draw(hundred) < time.Duration(of) }
	j.down = t.Down
	j.refused = chance(t.RefusedPercent)
	if writes && chance(t.LostResponsePercent) {
		j.responseLost = true
	}
	if writes && chance(t.LatePercent) {
		j.there += s.draw(t.LateBy)
	}
	return j
}

func (c *Cluster) carriedOut(done call, object runtime.Object, err error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || err != nil || done.method != http.MethodPatch {
		return
	}
	c.mu.Lock()
	notify := c.onWrite
	c.mu.Unlock()
	if notify != nil {
		notify(pod)
	}
}

// AddEnv creates an Env with one member, and its pool. comment pads the segment to a given length.
func (c *Cluster) AddEnv(env string, replicas int32, comment string) error {
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: env, Annotations: map[string]string{
		v1alpha1.AllowedImagesAnnotationKey: TenantImage,
	}}}
	e.Spec.TemplateRef.Name, e.Spec.Mode = "python", v1alpha1.SandboxEnvModeWarmPool
	member := v1alpha1.EnvClusterMember{Name: PoolOf(env)}
	member.Spec.Replicas = replicas
	e.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: c.ID, Members: []v1alpha1.EnvClusterMember{member}}}
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: member.Name, Labels: map[string]string{v1alpha1.LabelEnv: env}}}
	p.Spec.Replicas = replicas
	p.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: PoolImage + comment}}}
	sandboxtest.Close(&p.Spec.Template.Spec)
	for _, object := range []client.Object{e, p} {
		if _, err := c.server.create(object); err != nil {
			return fmt.Errorf("adding Env %s: %w", env, err)
		}
	}
	return nil
}

// PoolOf returns the name of an Env's pool.
func PoolOf(env string) string { return env + "-main" }

// RemoveEnv deletes an Env and its pool. Sandboxes stay.
func (c *Cluster) RemoveEnv(env string) error {
	for _, n := range []name{
		nameOf(&v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: env}}),
		nameOf(&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: PoolOf(env)}}),
	} {
		if _, err := c.server.remove(n, nil); err != nil {
			return fmt.Errorf("removing Env %s: %w", env, err)
		}
	}
	return nil
}

// Scale sets the replicas of an Env's pool.
func (c *Cluster) Scale(env string, replicas int32) error {
	n := nameOf(&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: PoolOf(env)}})
	_, err := c.server.update(n, func(o client.Object) (client.Object, error) {
		o.(*v1alpha1.SandboxPool).Spec.Replicas = replicas
		return o, nil
	})
	return err
}

// Reapply writes an Env as its user's manifest has it, with a label that changes each time. Its status and all fields of other writers are
// lost.
func (c *Cluster) Reapply(env string, round int) error {
	n := nameOf(&v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: env}})
	_, err := c.server.update(n, func(o client.Object) (client.Object, error) {
		e := o.(*v1alpha1.SandboxEnv)
		e.Labels = map[string]string{"round": fmt.Sprint(round)}
		e.Status = v1alpha1.SandboxEnvStatus{}
		return e, nil
	})
	return err
}

// Backup is a copy of etcd's content.
type Backup struct{ image image }

// BackUp copies etcd's content.
func (c *Cluster) BackUp() Backup { return Backup{c.server.backup()} }

// Restore restores etcd. The kubelet reports missing containers as gone, and ends those that the restored etcd does not have.
func (c *Cluster) Restore(b Backup) {
	c.journal.restore(c.server.backup(), b.image)
	c.server.restore(b.image)
	c.kubelet.restored()
}
