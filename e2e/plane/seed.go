// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
)

// seed creates the initial objects of a cluster: Nodes, the first ServiceAccount, and the CRDs.
func (p *Plane) seed(ctx context.Context, opts Options) error {
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	for i := range opts.Nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, p.node(i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a node: %w", err)
		}
	}
	if err := p.installCRDs(ctx, opts.CRDDir); err != nil {
		return err
	}
	return p.poll(ctx, "nodes and the default service account", func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if err := usable(&node); err != nil {
				return err
			}
		}
		// Without it no Pod is admitted.
		_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (p *Plane) node(i int) *corev1.Node {
	name := fmt.Sprintf("%s-node-%d", p.Name, i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
	}
}

func usable(node *corev1.Node) error {
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s is tainted %s", node.Name, node.Spec.Taints[0].Key)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not ready", node.Name)
}

// installCRDs creates the CRDs of all manifests in dir. The default directory may be missing, a configured one may not.
func (p *Plane) installCRDs(ctx context.Context, dir string) error {
	crds, err := readCRDs(dir)
	if err != nil {
		return fmt.Errorf("reading CRDs: %w", err)
	}
	client, err := apiextensions.NewForConfig(p.Config())
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range crds {
		if _, err := api.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("installing CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		err := p.poll(ctx, "CRD "+crd.Name, func(ctx context.Context) error {
			got, err := api.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return established(got)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
	}
	return errors.New("not established")
}

func readCRDs(dir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if dir == "" {
		source, err := sourceDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(source, "..", "..", "charts", "worker", "files", "crds")
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".yaml" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		found, err := decodeCRDs(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		crds = append(crds, found...)
	}
	return crds, nil
}

func decodeCRDs(content []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			return crds, nil
		} else if err != nil {
			return nil, err
		}
		// An empty document, such as the one before a leading separator.
		if crd.Name == "" {
			continue
		}
		if crd.Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("%s %s is no CustomResourceDefinition", crd.Kind, crd.Name)
		}
		crds = append(crds, crd)
	}
}
