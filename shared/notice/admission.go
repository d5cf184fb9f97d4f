package notice

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Admission is what Treadle reads of an admission review: enough to answer it and to choose whom to wake.
type Admission struct {
	// UID has to be repeated in the answer.
	UID string
	// Group and Resource say what kind of object it is about, Operation what is done to it.
	Group, Resource, Subresource, Operation string
	// Namespace and Name are those of the object; Name is empty for a collection.
	Namespace, Name string
	// User is who does it.
	User string
	// DryRun requests change nothing, so they must wake nobody.
	DryRun bool
}

// DecodeAdmission reads an AdmissionReview of admission.k8s.io/v1. Fields that it does not need are ignored: they are the
// API server's to add. The error names the field that is missing or wrong.
func DecodeAdmission(body []byte) (Admission, error) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    *struct {
			UID      string `json:"uid"`
			Resource struct {
				Group    string `json:"group"`
				Resource string `json:"resource"`
			} `json:"resource"`
			SubResource string `json:"subResource"`
			Operation   string `json:"operation"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
			DryRun      bool   `json:"dryRun"`
			UserInfo    struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return Admission{}, fmt.Errorf("admission review: %w", err)
	}
	switch req := review.Request; {
	case review.APIVersion != "admission.k8s.io/v1":
		return Admission{}, fmt.Errorf("admission review: field apiVersion: is %q, want admission.k8s.io/v1", review.APIVersion)
	case review.Kind != "AdmissionReview":
		return Admission{}, fmt.Errorf("admission review: field kind: is %q, want AdmissionReview", review.Kind)
	case req == nil:
		return Admission{}, errors.New("admission review: field request: missing")
	case req.UID == "":
		return Admission{}, errors.New("admission review: field request.uid: missing")
	case req.Resource.Resource == "":
		return Admission{}, errors.New("admission review: field request.resource.resource: missing")
	default:
		return Admission{
			UID: req.UID, Group: req.Resource.Group, Resource: req.Resource.Resource, Subresource: req.SubResource,
			Operation: req.Operation, Namespace: req.Namespace, Name: req.Name, User: req.UserInfo.Username, DryRun: req.DryRun,
		}, nil
	}
}

// Allow returns the answer that lets the request with the given UID pass: the only answer that Treadle ever gives.
func Allow(uid string) []byte {
	type response struct {
		UID     string `json:"uid"`
		Allowed bool   `json:"allowed"`
	}
	body, err := json.Marshal(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Response   response `json:"response"`
	}{"admission.k8s.io/v1", "AdmissionReview", response{uid, true}})
	if err != nil {
		panic(err) // strings and a boolean always marshal
	}
	return body
}
