/** As many as have colours of their own, twice over. */
export const COMPARED_MAX = 16;
