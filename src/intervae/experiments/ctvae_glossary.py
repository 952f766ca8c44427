"""Meanings of the metrics, data sets and variants on the page of ctvae-table1."""

GLOSSARY = {
    "shapes3d-like": "our own renderer with the factors of 3D Shapes",
    "sprites-frames": "seven of the nine factors of the paper's Sprites, 14 actions instead of 18; "
    "equal images are in the same split",
    "dsprites": "rendered again, see the mark; equal images are in the same split",
    "celeba": "pairs of faces that agree in nine of ten attributes and differ in everything "
    "unlabelled, so the true image after an action is unknown",
    "four codebooks": "`ct-vae`: 256 variables; `mcq-vae`: codebooks alone, four codes per patch "
    "of 4 x 4 pixels",
    "action_accuracy": "fraction of test pairs whose action is identified",
    "factor_accuracy": "fraction of test pairs whose changed factor is identified",
    "majority_accuracy": "accuracy of the most frequent action of the training pairs; "
    "`factor_majority_accuracy`: of the most frequent factor",
    "action_ceiling": "accuracy that no method exceeds, as some pairs look alike and have "
    "different actions",
    "action_psnr": "dB of act(), applied once or several times to test images, against the true "
    "image of the grid, which may be a training image; only factors with many values allow many "
    "steps",
    "action_psnr_pairs": "dB of act() on the images before of test pairs, against those after",
    "unchanged_psnr": "dB of the unchanged image before against the true image",
    "reconstruction_psnr": "dB of the reconstructed true image",
    "others_error_after_action": "percent of the unchanged factors that a predictor, trained on "
    "real images, misreads after act()",
    "others_error_reconstructed": "the same on the reconstructed image before",
    "others_worse": "their difference in points; `car`: of that factor when others change; "
    "`after car`: of the others when it changes",
    "others_worse_views": "the same where act() averages an image and its mirror image, against "
    "reconstructions averaged likewise",
    "others_worse_alone": "the same of act(augment=False), against plain reconstructions",
    "acted_error_after_action": "percent of pairs whose changed factor the predictor misreads "
    "after act()",
    "acted_error_reconstructed": "the same on the reconstructed true image after",
    "predictor_error": "percent of all factors that the predictor misreads on real images",
    "explained_pairs": "fraction of test pairs that an action explains better than no action and "
    "chance",
    "explained_equal": "fraction of equal images that no action explains best",
    "explained_unrelated": "fraction of random pairs of test images (a few are one step apart) "
    "that chance explains best; `explained_noise`: of images and noise",
    "change_auc": "area under the ROC curve of the predicted change probability for codes that "
    "change (0.5 is chance)",
    "mask_auc": "the same of the intervention mask; `mask_open`: its mean",
    "mask_balanced": "mean of two fractions: of changing codes, those whose mask is more probably "
    "open than shut; of unchanging codes, those whose mask is more probably shut (0.5 is chance)",
    "codes_changed": "fraction of codes that change, over all actions",
    "edges_open": "mean edge; with sparse graphs the fraction of edges that are open",
    "codes_psnr": "dB of reconstructed test images; `codes_ssim`: their SSIM",
    "code_usage": "fraction of codes in use; `code_perplexity`: their perplexity",
}
