package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// ApplyFile applies the manifests of a YAML file as the cluster's administrator and returns references to what it applied.
func (s *Stack) ApplyFile(ctx context.Context, path string) error {
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := s.Apply(ctx, body); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Apply applies YAML manifests as the cluster's administrator. Objects without a namespace go to default. It returns the objects as
// the API server has them.
func (s *Stack) Apply(ctx context.Context, manifests []byte) ([]unstructured.Unstructured, error) {
	config := s.Kubernetes.AdminConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var applied []unstructured.Unstructured
	for n := 1; ; n++ {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return applied, nil
		}
		if err != nil {
			return applied, fmt.Errorf("document %d: %w", n, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		resource, err := resourceOf(client, mapper, &object)
		if err != nil {
			return applied, fmt.Errorf("document %d: %w", n, err)
		}
		got, err := resource.Apply(ctx, object.GetName(), &object, metav1.ApplyOptions{FieldManager: "local", Force: true})
		if err != nil {
			return applied, fmt.Errorf("document %d (%s %s): %w", n, object.GetKind(), object.GetName(), err)
		}
		applied = append(applied, *got)
	}
}

// Delete deletes objects that Apply returned, and what belongs to them.
func (s *Stack) Delete(ctx context.Context, objects []unstructured.Unstructured) error {
	config := s.Kubernetes.AdminConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	var errs []error
	for i := range objects {
		resource, err := resourceOf(client, mapper, &objects[i])
		if err == nil {
			err = resource.Delete(ctx, objects[i].GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", objects[i].GetKind(), objects[i].GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func resourceOf(client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), nil
	}
	if object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	return client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}
